// The steps that lead on from a DistState; the edges of the graph that the planner searches.
//
//   the last k axes that cut a dim      -> R, to another dim, in another order in their dim
//   the last axis that cuts a dim       -> another cut of it, P(sum) if it owes that in the end
//   axes that owe one kind of reduction -> R, to a dim
//   an axis that masks                  -> P(sum)
//   an axis that is R                   -> to a dim, to what it owes in the end
//
// "To a dim" is behind the axes that cut it, in every order. Several axes form one group; axes that
// ask for a backend of their own move alone. step_at (tile_step.h) knows every one of these steps.
//
// Left out is what is never cheaper, since no tile is smaller than an even one: an axis does not
// come to a cut of the first state that the goal does not have, and does not leave a cut of the
// goal that it has come to.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/plan/dist_state.h"
#include "tegula/plan/ends.h"
#include "tegula/plan/step_cost.h"

namespace tegula::inner {

struct Edge {
  std::int64_t picoseconds = 0;
  std::int64_t peak_bytes = 0;
  Ends ends;
};

class Edges {
 public:
  // The space outlives it.
  Edges(const StateSpace& space, const CostModel& model);

  // By the slots of a group.
  const std::vector<Rates>& rates() const { return rates_; }

  // All edges from a state; valid until the next call. O(edges).
  const std::vector<Edge>& from(DistState state);

 private:
  using Slots = std::uint32_t;  // one bit each
  // What the edges of some axes from one place to another have in common.
  struct Departure {
    StepKind kind;
    Slots slots;
    std::size_t dim;  // that they leave; none: kNoDim
    std::int64_t length;
  };
  // A place behind the first axes that cut a dim.
  struct Place {
    std::size_t dim;
    std::size_t count;
  };
  static constexpr std::size_t kNoDim = StateSpace::kMostDims;

  void leave_dims();
  void reduce();
  void reduce(Slots slots);
  void leave_replicas();
  Slots owing_like(std::uint8_t slot) const;
  bool can_owe_in_the_end(std::uint8_t slot) const;
  bool can_act_together(Slots slots) const;
  void go_to_dims(const Departure& departure);
  void reorder(Slots slots, Place place);
  // All axes cut evenly, in any order but for those that `not_first` begins.
  void go_to_evenly(const Departure& departure, Place place, std::uint8_t not_first);
  // The first of them cut as an end of the way has it, but do not begin with `unlike`; the others
  // cut evenly.
  void go_to_cuts_of_ends(const Departure& departure, Place place, StateSpace::Cutter unlike);
  void add(const Departure& departure, const Ends& ends, std::size_t dim = kNoDim,
           std::int64_t length = 0);

  const StateSpace& space_;
  std::vector<Rates> rates_;  // by the slots of a group
  DistState state_;
  StateSpace::View view_;
  int owed_class_ = -1;
  std::vector<Edge> edges_;
};

}  // namespace tegula::inner
