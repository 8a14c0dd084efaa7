// Dijkstra's algorithm, backwards, over the edges of edges.h but for the order of the axes that cut
// a dim. Lengths, and so times, are those of the states that the search meets: even cuts may come
// in any order, and a cut that an end makes stands behind the axes that it has there.
#include "tegula/plan/remaining_time.h"

#include <algorithm>
#include <bit>

#include "tegula/plan/search_steps.h"

namespace tegula {
namespace {

constexpr std::size_t kReplicas = StateSpace::kReplicate;
constexpr std::size_t kFirstDebt = StateSpace::kOwedAtFrom;
constexpr std::size_t kSecondDebt = StateSpace::kOwedAtTo;
constexpr std::int64_t kNever = -1;
// States to look back from before the first question and for each question that asks for more:
// tried on random pairs over four axes, where the search takes about as long as this one then.
constexpr std::size_t kAtFirst = 100;
constexpr std::size_t kAtATime = 1;

std::uint8_t first_of(std::uint32_t slots) {
  return static_cast<std::uint8_t>(std::countr_zero(slots));
}

std::int64_t divided(std::int64_t length, std::int64_t ranks) {
  return length / ranks + (length % ranks == 0 ? 0 : 1);
}

std::size_t whereabouts(std::uint8_t symbol) {
  return symbol < StateSpace::kFirstShard ? symbol
                                          : StateSpace::kFirstShard + StateSpace::dim_of(symbol);
}

}  // namespace

RemainingTime::RemainingTime(const StateSpace& space, const std::vector<Rates>& rates)
    : space_(space), rates_(rates) {
  fill_tables();
  meet(nodes_.number_of(StateSpace::without_order(space.to())), 0);
  settle(kAtFirst);
}

void RemainingTime::fill_tables() {
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    if (space_.slots()[slot].can_merge) mergeable_ |= 1U << slot;
    for (std::size_t end = 0; end < can_owe_.size(); ++end) {
      if (space_.slots()[slot].owed[end] != nullptr) can_owe_[end] |= 1U << slot;
    }
  }
  for (const StateSpace::Dim& dim : space_.dims()) {
    lengths_.emplace_back();
    lengths_.back().reserve(rates_.size());
    for (const Rates& group : rates_) lengths_.back().push_back(divided(dim.length, group.ranks));
  }
  for (Slots slots = 0; slots < rates_.size(); ++slots) {
    DistState ones;
    for_each_slot(slots, [&](std::uint8_t slot) { ones = StateSpace::with(ones, slot, 1); });
    ones_.push_back(ones.bits);
  }
}

bool RemainingTime::is_settled(DistState state) const {
  const auto number = nodes_.find(state);
  return number != StateMap<Node>::kNone && nodes_[number].is_settled;
}

std::int64_t RemainingTime::so_far(DistState state) const {
  const auto number = nodes_.find(StateSpace::without_order(state));
  if (number == StateMap<Node>::kNone || !nodes_[number].is_settled) return farthest_;
  return nodes_[number].time;
}

std::int64_t RemainingTime::sharpened(DistState state) {
  if (!is_settled(StateSpace::without_order(state))) settle(kAtATime);
  return so_far(state);
}

void RemainingTime::settle(std::size_t count) {
  while (count > 0 && !queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    const Waiting next = queue_.back();
    queue_.pop_back();
    Node& node = nodes_[next.node];
    if (node.is_settled) continue;
    node.is_settled = true;
    --count;
    farthest_ = next.time;
    look_back(nodes_.state(next.node), next.time);
  }
}

void RemainingTime::meet(std::uint32_t number, std::int64_t time) {
  Node& node = nodes_[number];
  if (node.is_met && node.time <= time) return;
  node = {time, true, false};
  queue_.push_back({time, number});
  std::push_heap(queue_.begin(), queue_.end());
}

// Which steps led here ----------------------------------------------------------------------------

void RemainingTime::look_back(DistState state, std::int64_t time) {
  state_ = state;
  time_ = time;
  at_ = {};
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    at_[whereabouts(StateSpace::symbol_of(state, slot))] |= 1U << slot;
  }
  bytes_ = space_.other_bytes();
  for (std::size_t dim = 0; dim < lengths_.size(); ++dim) {
    length_at_[dim] = length_of(dim, at_[kFirstDim + dim], state);
    bytes_ *= length_at_[dim];
  }
  look_back_from_debt(kFirstDebt);
  look_back_from_debt(kSecondDebt);
  for (Slots slots = at_[kReplicas]; slots != 0; slots = (slots - 1) & at_[kReplicas]) {
    if (!can_act_together(slots)) continue;
    look_back_to_debts(slots, kReplicas);
    look_back_to_dims(slots, kReplicas);
  }
  for (std::size_t dim = 0; dim < lengths_.size(); ++dim) {
    const Whereabouts to = kFirstDim + dim;
    const Slots arrived = arrived_at(dim);
    for (Slots slots = arrived; slots != 0; slots = (slots - 1) & arrived) {
      if (!can_act_together(slots)) continue;
      look_back_to_debts(slots, to);
      look_back_to_dims(slots, to);
      if ((slots & (slots - 1)) != 0) continue;
      meet({kSlice, slots, kReplicas, to},
           StateSpace::with(state_, first_of(slots), StateSpace::kReplicate));
    }
    look_back_to_other_cuts(dim);
  }
}

// Nobody comes to a cut of the first state that the goal does not have.
RemainingTime::Slots RemainingTime::arrived_at(std::size_t dim) const {
  const Slots slots = at_[kFirstDim + dim];
  if (space_.is_even(dim)) return slots;
  const std::uint8_t cut_of_from = StateSpace::shard_symbol(dim, StateSpace::kCutOfFrom);
  Slots arrived = 0;
  for_each_slot(slots, [&](std::uint8_t slot) {
    const std::uint8_t symbol = StateSpace::symbol_of(state_, slot);
    if (symbol != cut_of_from || space_.goal_of(slot) == symbol) arrived |= 1U << slot;
  });
  return arrived;
}

void RemainingTime::look_back_to_dims(Slots slots, Whereabouts to) {
  for (Whereabouts from = kFirstDim; from < kFirstDim + lengths_.size(); ++from) {
    if (from == to) continue;
    choose_cuts({to == kReplicas ? kGather : kTurn, slots, from, to}, slots, state_);
  }
}

// They owed one kind of reduction, each as it does at one of the ends.
void RemainingTime::look_back_to_debts(Slots slots, Whereabouts to) {
  if ((slots & ~(can_owe_[0] | can_owe_[1])) != 0) return;
  const Arrival arrival{to == kReplicas ? kReduce : kReduceScatter, slots, kFirstDebt, to};
  const Slots choice = slots & can_owe_[0] & can_owe_[1];
  for (Slots second = choice;; second = (second - 1) & choice) {
    const Slots at_second = second | (slots & ~can_owe_[0]);
    DistState before = state_;
    std::uint32_t ops = 0;
    for_each_slot(slots, [&](std::uint8_t slot) {
      const std::uint8_t debt = (at_second >> slot & 1U) != 0 ? kSecondDebt : kFirstDebt;
      before = StateSpace::with(before, slot, debt);
      ops |= 1U << static_cast<unsigned>(space_.owed_op(slot, debt));
    });
    if ((ops & (ops - 1)) == 0) meet(arrival, before);
    if (second == 0) return;
  }
}

void RemainingTime::look_back_from_debt(Whereabouts debt) {
  for_each_slot(at_[debt], [&](std::uint8_t slot) {
    if (space_.goal_of(slot) != debt) return;
    const auto [first, second] = space_.slots()[slot].owed;
    const Slots slots = 1U << slot;
    meet({kOwe, slots, kReplicas, debt}, StateSpace::with(state_, slot, StateSpace::kReplicate));
    if (space_.owed_op(slot, static_cast<std::uint8_t>(debt)) == ReduceOp::Sum) {
      for (std::size_t dim = 0; dim < lengths_.size(); ++dim) {
        choose_cuts({kPad, slots, kFirstDim + dim, debt}, slots, state_);
      }
    }
    if (debt != kSecondDebt || first == nullptr) return;
    if (const auto kind = step_kind(*first, *second)) {
      meet({*kind, slots, kFirstDebt, debt}, StateSpace::with(state_, slot, kFirstDebt));
    }
  });
}

// Those whose cuts differ are fewer than those that moved, if others only changed places.
void RemainingTime::look_back_to_other_cuts(std::size_t dim) {
  if (space_.is_even(dim)) return;
  const Whereabouts place = kFirstDim + dim;
  const Slots arrived = arrived_at(dim);
  for (Slots slots = arrived; slots != 0; slots = (slots - 1) & arrived) {
    const StepKind kind = (slots & (slots - 1)) == 0 ? kTurn : StepKind::Permute;
    if (can_act_together(slots)) choose_cuts({kind, slots, place, place}, slots, state_);
  }
}

void RemainingTime::choose_cuts(const Arrival& arrival, Slots waiting, DistState before) {
  const std::size_t dim = arrival.from - kFirstDim;
  if (space_.is_even(dim)) {
    const std::uint8_t symbol = StateSpace::shard_symbol(dim, StateSpace::kEven);
    const std::uint64_t others = before.bits & ~(ones_[waiting] * StateSpace::kSymbolMask);
    meet(arrival, {others | ones_[waiting] * symbol});
    return;
  }
  if (waiting == 0) {
    meet(arrival, before);
    return;
  }
  const std::uint8_t slot = first_of(waiting);
  for (StateSpace::CutOf cut : {StateSpace::kEven, StateSpace::kCutOfFrom}) {
    const std::uint8_t symbol = StateSpace::shard_symbol(dim, cut);
    if (!space_.can_cut({slot, symbol}) || symbol == StateSpace::symbol_of(state_, slot)) continue;
    choose_cuts(arrival, waiting & (waiting - 1), StateSpace::with(before, slot, symbol));
  }
}

void RemainingTime::meet(const Arrival& arrival, DistState before) {
  std::int64_t bytes = space_.other_bytes();
  for (std::size_t dim = 0; dim < lengths_.size(); ++dim) {
    const Whereabouts place = kFirstDim + dim;
    const bool comes = place == arrival.from;
    const bool leaves = place == arrival.to;
    if (!comes && !leaves) {
      bytes *= length_at_[dim];
      continue;
    }
    const Slots slots = comes ? at_[place] | arrival.slots : at_[place] & ~arrival.slots;
    const std::int64_t length = length_of(dim, slots, before);
    if (length == kNever) return;
    bytes *= length;
  }
  const auto number = nodes_.number_of(before);
  if (nodes_[number].is_settled) return;
  const StepCost cost = cost_of(arrival.kind, rates_[arrival.slots], bytes, bytes_);
  meet(number, time_ + cost.picoseconds);
}

// States without order ----------------------------------------------------------------------------

std::int64_t RemainingTime::length_of(std::size_t dim, Slots slots, DistState state) const {
  if (space_.is_even(dim)) return lengths_[dim][slots];
  const std::uint8_t even = StateSpace::shard_symbol(dim, StateSpace::kEven);
  Slots special = 0;
  for_each_slot(slots, [&](std::uint8_t slot) {
    if (StateSpace::symbol_of(state, slot) != even) special |= 1U << slot;
  });
  if (special == 0) return lengths_[dim][slots];
  for (const StateSpace::Row* row : {&space_.dims()[dim].from, &space_.dims()[dim].to}) {
    Slots first = 0;  // that cut as this end has it
    for (std::uint8_t place = 0; place < row->count; ++place) {
      const StateSpace::Cutter cutter = row->cutters[place];
      if (StateSpace::symbol_of(state, cutter.slot) != cutter.symbol) break;
      first |= 1U << cutter.slot;
      if ((special & ~first) != 0) continue;
      return divided(space_.cut_length(0, cutter), rates_[slots & ~first].ranks);
    }
  }
  return kNever;
}

}  // namespace tegula
