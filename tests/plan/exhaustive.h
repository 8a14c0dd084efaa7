// The least time of a redistribution by brute force: all specs of a tensor, tried pair by pair as
// one step, relaxed until nothing changes. Knows nothing of how the planner finds its way.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tegula/plan/cost_model.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// Every way to distribute the tensor with even cuts and replicas, in every shard order.
std::vector<DTensorSpec> plain_specs(const DeviceMesh& mesh, const TensorMeta& meta);

// By the specs' ids: the least time from `from` to each of them over steps between them.
std::map<std::uint64_t, std::int64_t> least_times(const std::vector<DTensorSpec>& specs,
                                                  const DTensorSpec& from, const CostModel& model);

// Over all specs whose axes do what plain_specs has them do, or what one of the ends has them do;
// cuts that are not even only behind the axes behind which an end has them.
std::int64_t least_time(const DTensorSpec& from, const DTensorSpec& to, const CostModel& model);

}  // namespace tegula
