// Who sends what to whom when a tensor moves from one mesh to another.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/spec/slices.h"

namespace tegula::inner {

// A box that a rank sends to another: where it lies in the sender's tile and in the receiver's.
struct Delivery {
  std::int64_t sender = 0;
  Box from;
  Box to;
  bool operator==(const Delivery&) const = default;
};

// What fills the tile that `receiver` has by `to`, in an order that all ranks agree on. Every
// element comes from one rank that has it by `from`: from the receiver itself if it does; else the
// replicas take turns, so that different receivers ask different ones.
//
// A mesh with several fibers holds the tensor once in each. A receiver that is in the mesh of
// `from` takes from its own fiber, so that a tensor which differs from fiber to fiber stays that
// way where the receivers of a fiber of `to` lie in one fiber of `from`; a receiver outside takes
// from fiber 0. Owed reductions do not matter: they count as replicas.
//
// UsageError: a receiver that is not in the mesh of `to`, specs of different shapes.
// O(boxes * replicas).
std::vector<Delivery> deliveries(const DTensorSpec& from, const DTensorSpec& to,
                                 std::int64_t receiver);

}  // namespace tegula::inner
