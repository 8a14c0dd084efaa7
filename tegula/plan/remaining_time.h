// A lower bound on the time from a DistState to the goal, to lead the search there.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tegula/plan/dist_state.h"
#include "tegula/plan/state_map.h"
#include "tegula/plan/step_cost.h"

namespace tegula::inner {

// The least time if the order in which axes cut a dim did not matter: any of them could leave it,
// and each would come to the place it should have. Found by a search of its own that begins at the
// goal and goes on as it is asked. It is led to the start of the way by a bound on the time since
// the start, so a way over a state that it has not reached yet takes no less than the way over the
// next that it will reach.
//
// Law: at most what the edges of any way to space.to() take together; 0 there. At any time, no edge
// shortens it by more than the edge takes, so a search that it leads meets every state at its least
// cost.
class RemainingTime {
 public:
  // `rates` are those of all groups of slots, one bit each. Both outlive it.
  RemainingTime(const StateSpace& space, const std::vector<Rates>& rates);

  // As far as it is known. O(axes).
  std::int64_t so_far(DistState state) const;
  // The same, now and then after some more work, if the state has not been reached yet.
  std::int64_t sharpened(DistState state);

 private:
  using Slots = std::uint32_t;  // one bit each
  // Where an axis is: R, owing as at one of the ends, or kFirstDim + the dim that it cuts.
  using Whereabouts = std::size_t;
  static constexpr Whereabouts kFirstDim = StateSpace::kFirstShard;

  struct Node {
    std::int64_t time = 0;
    bool is_met = false;
    bool is_settled = false;
  };
  struct Waiting {
    std::int64_t least;  // time of a way over the node
    std::uint32_t node;
    bool operator<(const Waiting& other) const {  // for a heap with the least on top
      return least != other.least ? least > other.least : node > other.node;
    }
  };
  // A step that led to the state which is looked back from.
  struct Arrival {
    StepKind kind;
    Slots slots;
    Whereabouts from;
    Whereabouts to;
  };

  void fill_tables();
  void fill_least_since_start();
  // At least what it takes from the start to a state without order.
  std::int64_t since_start(DistState state) const;
  bool is_settled(DistState state) const;
  void settle_next();
  void look_back(DistState state, std::int64_t time);
  Slots arrived_at(std::size_t dim) const;
  void look_back_to_dims(Slots slots, Whereabouts to);
  void look_back_to_debts(Slots slots, Whereabouts to);
  void look_back_from_debt(Whereabouts debt);
  void look_back_to_other_cuts(std::size_t dim);
  // Calls meet for every way in which the slots may have cut the dim that they come from.
  void choose_cuts(const Arrival& arrival);
  void meet(const Arrival& arrival, DistState before);
  void meet(std::uint32_t number, std::int64_t time);

  // The longest piece of a dim that these slots cut in the way the state says; kNever if no order
  // of them has such cuts.
  std::int64_t length_of(std::size_t dim, Slots slots, DistState state) const;
  bool can_act_together(Slots slots) const {
    return (slots & (slots - 1)) == 0 || (slots & ~mergeable_) == 0;
  }

  const StateSpace& space_;
  const std::vector<Rates>& rates_;
  Slots mergeable_ = 0;
  std::array<Slots, 2> can_owe_{};                  // as at one of the ends
  std::vector<std::vector<std::int64_t>> lengths_;  // by dim and the slots that cut it, evenly
  std::vector<std::int64_t> least_since_start_;     // by the slots that have left their first place
  StateMap<Node> nodes_;
  std::vector<Waiting> queue_;
  std::int64_t least_ = 0;  // time of a way over a state that is not settled
  std::uint32_t questions_ = 0;
  // The state that is looked back from.
  DistState state_;
  std::int64_t time_ = 0;
  std::int64_t bytes_ = 0;
  std::array<Slots, kFirstDim + StateSpace::kMostDims> at_{};
  std::array<std::int64_t, StateSpace::kMostDims> length_at_{};
  std::int64_t length_left_ = 0;  // of the dim that axes came to, before they did
};

}  // namespace tegula::inner
