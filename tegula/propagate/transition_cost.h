// What it takes to bring one operand along one axis from a placement to another, roughly: the
// estimate by which an axis chooses its move. The plan that is carried out comes from the planner,
// which prices steps by the same arithmetic (plan/step_cost.h).
#pragma once

#include <cstdint>
#include <optional>

#include "tegula/placement/placement.h"
#include "tegula/plan/step_cost.h"

namespace tegula::inner {

struct TransitionCost {
  bool communicates = false;
  std::int64_t picoseconds = 0;

  TransitionCost& operator+=(const TransitionCost& other) {
    communicates = communicates || other.communicates;
    picoseconds = saturating_sum(picoseconds, other.picoseconds);
    return *this;
  }
};

// A tile of `bytes` along an axis with these rates. Nothing if only the cut of a dim differs: which
// cut is taken is decided for all operands together. None where such a change is never made
// unasked: a debt is not made from data that is whole (unless that is allowed) or cut, nor one kind
// of debt from another.
enum class Owing { No, Allowed };
std::optional<TransitionCost> transition_cost(const Placement& from, const Placement& to,
                                              std::int64_t bytes, const Rates& rates, Owing owing);

// The time to send what a result owes; 0 if nothing. Less than that of a transition to R, which
// writes a tile: a debt that can wait is better than one that is paid at once.
std::int64_t debt_cost(const Placement& result, std::int64_t bytes, const Rates& rates);

}  // namespace tegula::inner
