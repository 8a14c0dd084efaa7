// A lower bound on the time from a DistState to the goal, to lead the search there.
#pragma once

#include <cstdint>

#include "tegula/plan/dist_state.h"
#include "tegula/plan/step_cost.h"

namespace tegula {

class RemainingTime {
 public:
  // The space outlives it.
  RemainingTime(const StateSpace& space, const CostModel& model);

  // At most what the moves of any way to space.to() take together; 0 there. O(axes + dims).
  std::int64_t operator()(DistState state);

 private:
  std::int64_t calls_needed() const;
  bool has_to_be_left(std::size_t dim) const;

  const StateSpace& space_;
  StateSpace::View goal_;
  StateSpace::View view_;  // of the state in question
  Rates best_;             // the least of every axis
  std::int64_t least_tile_ = 0;
  bool can_pad_ = false;
  bool can_rename_ = false;
};

}  // namespace tegula
