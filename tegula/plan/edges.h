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
#include <span>
#include <vector>

#include "tegula/plan/dist_state.h"
#include "tegula/plan/step_cost.h"

namespace tegula {

// One step that may end in any of several states, which differ only in the order of the axes that
// move.
struct Edge {
  std::int64_t picoseconds = 0;
  std::int64_t peak_bytes = 0;
  std::uint32_t first = 0;  // of its ends
  std::uint32_t count = 0;
};

class Edges {
 public:
  // The space outlives it.
  Edges(const StateSpace& space, const CostModel& model);

  // By the slots of a group.
  const std::vector<Rates>& rates() const { return rates_; }

  // All edges from a state; valid until the next call. O(ends).
  const std::vector<Edge>& from(DistState state);
  // Of an edge that the last call gave.
  std::span<const DistState> ends(const Edge& edge) const {
    return {ends_.data() + edge.first, edge.count};
  }

 private:
  using Slots = std::uint32_t;  // one bit each
  // What the edges of some axes from one place to another have in common.
  struct Departure {
    StepKind kind;
    Slots slots;
    std::size_t dim;  // that they leave; none: kNoDim
    std::int64_t length;
  };
  // A dim to which axes come, one after the other.
  struct Arrival {
    std::size_t dim;
    std::size_t count;
    std::int64_t length;
    bool is_as_from;  // so far the dim is cut as at an end
    bool is_as_to;
    DistState state;
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
  void reorder(Slots slots, std::size_t dim, std::size_t first);
  void go_to_evenly(const Departure& departure, std::size_t dim, std::size_t count,
                    std::uint64_t unlike);
  Arrival arrival_at(std::size_t dim, std::size_t count) const;
  // Calls visit(arrival) for every way to let the slot come next.
  template <class Visit>
  void for_each_cut(const Arrival& arrival, std::uint8_t slot, Visit visit) const;
  void arrive(const Departure& departure, const Arrival& arrival, Slots waiting);
  void add(const Departure& departure, DistState to, std::size_t dim = kNoDim,
           std::int64_t length = 0);
  // Ends from `first` on are those of a new edge.
  void close(const Departure& departure, std::size_t first, std::size_t dim, std::int64_t length);

  const StateSpace& space_;
  std::vector<Rates> rates_;                        // by the slots of a group
  std::vector<std::vector<std::uint64_t>> orders_;  // likewise: the bits of their places 0, 1, ...
  DistState state_;
  StateSpace::View view_;
  int owed_class_ = -1;
  std::vector<Edge> edges_;
  std::vector<DistState> ends_;
};

}  // namespace tegula
