// The search for the cheapest way through the states between two ends.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tegula/plan/edges.h"

namespace tegula::inner {

// The states after space.from(), ending with space.to(), on a way of least time over edges whose
// peak is at most `memory_cap`; none if no way keeps to that. O(edges * log states).
std::optional<std::vector<DistState>> fastest_way(
    const StateSpace& space, const CostModel& model,
    std::int64_t memory_cap = std::numeric_limits<std::int64_t>::max());

// The least `memory_cap` with which there is a way.
std::int64_t least_peak(const StateSpace& space, const CostModel& model);

}  // namespace tegula::inner
