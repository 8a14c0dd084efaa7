// Gradients whose way to their leaf is one all-reduce: those can be reduced together.
#pragma once

#include <optional>

#include "tegula/comm/group.h"
#include "tegula/payload/payload.h"
#include "tegula/redistribute/route.h"

namespace tegula::inner {

struct OwedAllReduce {
  Group group;
  ReduceOp op;
};

// None if the way consists of something else, or this rank is outside of the mesh. All ranks of the
// mesh call it, since groups are made here; nothing is sent. UsageError as Route.
std::optional<OwedAllReduce> owed_all_reduce(const Payload& grad, const DTensorSpec& wanted,
                                             const RouteOptions& options);

}  // namespace tegula::inner
