// The search for the cheapest way through the states between two ends.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tegula/plan/moves.h"

namespace tegula {

// The states after space.from(), ending with space.to(), on a way of least time over moves whose
// peak is at most `most_bytes`; none if no way keeps to that. O(moves * log states).
std::optional<std::vector<DistState>> fastest_way(
    const StateSpace& space, const CostModel& model,
    std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max());

// The least `most_bytes` with which there is a way.
std::int64_t least_peak(const StateSpace& space, const CostModel& model);

}  // namespace tegula
