// Dijkstra's algorithm, backwards, over the edges of edges.h but for the order of the axes that cut
// a dim. Lengths, and so times, are those of the states that the search meets: even cuts may come
// in any order, and a cut that an end makes stands behind the axes that it has there.
#include "tegula/plan/remaining_time.h"

#include <algorithm>
#include <bit>

#include "tegula/plan/search_steps.h"

namespace tegula::inner {
namespace {

constexpr std::size_t kReplicas = StateSpace::kReplicate;
constexpr std::size_t kFirstDebt = StateSpace::kOwedAtFrom;
constexpr std::size_t kSecondDebt = StateSpace::kOwedAtTo;
constexpr std::int64_t kNever = -1;
// States to look back from before the first question, unless the start is reached earlier, and how
// many questions that ask for more it takes to look back from another: tried on random pairs over
// four axes.
constexpr std::size_t kAtFirst = 100;
constexpr std::uint32_t kQuestions = 4;

std::uint8_t first_of(std::uint32_t slots) {
  return static_cast<std::uint8_t>(std::countr_zero(slots));
}

std::int64_t longest_part(std::int64_t length, std::int64_t ranks) {
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
  fill_least_since_start();
  meet(nodes_.number_of(StateSpace::without_order(space.to())), 0);
  const DistState start = StateSpace::without_order(space.from());
  for (std::size_t i = 0; i < kAtFirst && !is_settled(start); ++i) settle_next();
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
    for (const Rates& group : rates_)
      lengths_.back().push_back(longest_part(dim.length, group.ranks));
  }
}

// Axes that have left the place they had at the start (a dim, one kind of reduction that they owe)
// did so in steps that send, and a step moves axes of one place only. An axis that owes something
// else in the end is not counted, since it may get there without sending.
//
// Law: no edge makes it greater by more than the edge takes.
void RemainingTime::fill_least_since_start() {
  std::int64_t whole = space_.other_bytes();
  for (const StateSpace::Dim& dim : space_.dims()) whole *= dim.length;
  const Slots all = static_cast<Slots>(rates_.size() - 1);
  const std::int64_t least_tile = whole / rates_[all].ranks;
  std::vector<std::size_t> first_place(space_.slot_count(), kReplicas);
  std::vector<std::int64_t> to_leave(space_.slot_count(), 0);
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    const std::uint8_t symbol = StateSpace::symbol_of(space_.from(), slot);
    if (symbol == kReplicas || space_.goal_of(slot) == kSecondDebt) continue;
    const Slots own = 1U << slot;
    const bool owes = symbol == kFirstDebt;
    const std::int64_t tile = owes ? whole / rates_[all & ~own].ranks : least_tile;
    first_place[slot] = owes ? kFirstDim + StateSpace::kMostDims +
                                   static_cast<std::size_t>(space_.owed_op(slot, symbol))
                             : whereabouts(symbol);
    to_leave[slot] = time_of(rates_[own], 1, tile - tile / rates_[own].ranks, least_tile);
  }
  for (Slots left = 0; left <= all; ++left) {
    std::int64_t time = 0;
    for_each_slot(left, [&](std::uint8_t slot) {
      std::int64_t together = 0;  // with others of its place, counted already
      for_each_slot(left & ((1U << slot) - 1), [&](std::uint8_t other) {
        if (first_place[other] == first_place[slot]) together = std::max(together, to_leave[other]);
      });
      time += std::max<std::int64_t>(0, to_leave[slot] - together);
    });
    least_since_start_.push_back(time);
  }
}

std::int64_t RemainingTime::since_start(DistState state) const {
  const std::uint64_t changed = state.bits ^ StateSpace::without_order(space_.from()).bits;
  Slots left = 0;
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    const std::uint64_t bits = changed >> (StateSpace::kSlotBits * slot) & StateSpace::kSlotMask;
    left |= static_cast<Slots>(bits != 0) << slot;
  }
  return least_since_start_[left];
}

bool RemainingTime::is_settled(DistState state) const {
  const auto number = nodes_.find(state);
  return number != StateMap<Node>::kNone && nodes_[number].is_settled;
}

std::int64_t RemainingTime::so_far(DistState state) const {
  const DistState without_order = StateSpace::without_order(state);
  const auto number = nodes_.find(without_order);
  if (number != StateMap<Node>::kNone && nodes_[number].is_settled) return nodes_[number].time;
  return std::max<std::int64_t>(0, least_ - since_start(without_order));
}

std::int64_t RemainingTime::sharpened(DistState state) {
  if (!is_settled(StateSpace::without_order(state)) && ++questions_ % kQuestions == 0) {
    settle_next();
  }
  return so_far(state);
}

void RemainingTime::settle_next() {
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    const Waiting next = queue_.back();
    queue_.pop_back();
    Node& node = nodes_[next.node];
    if (node.is_settled) continue;
    node.is_settled = true;
    look_back(nodes_.state(next.node), node.time);
    least_ = queue_.empty() ? next.least : queue_.front().least;
    return;
  }
}

void RemainingTime::meet(std::uint32_t number, std::int64_t time) {
  Node& node = nodes_[number];
  if (node.is_met && node.time <= time) return;
  node = {time, true, false};
  queue_.push_back({time + since_start(nodes_.state(number)), number});
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
      length_left_ = length_of(dim, at_[to] & ~slots, state_);
      if (length_left_ == kNever) continue;
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
    choose_cuts({to == kReplicas ? kGather : kTurn, slots, from, to});
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
        choose_cuts({kPad, slots, kFirstDim + dim, debt});
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
    if (can_act_together(slots)) choose_cuts({kind, slots, place, place});
  }
}

// All even; or, where the dim is not cut evenly at the start, the first of those that cut it then
// as they did. Axes that come from the dim that they are in cut it in another way now.
void RemainingTime::choose_cuts(const Arrival& arrival) {
  const std::size_t dim = arrival.from - kFirstDim;
  const std::uint64_t even = StateSpace::shard_symbol(dim, StateSpace::kEven);
  const std::uint64_t others = state_.bits & ~(kOnes[arrival.slots] * StateSpace::kSymbolMask);
  DistState before{others | kOnes[arrival.slots] * even};
  if (space_.is_even(dim)) {
    meet(arrival, before);
    return;
  }
  Slots even_now = 0;
  for_each_slot(arrival.slots, [&](std::uint8_t slot) {
    if (StateSpace::symbol_of(state_, slot) == even) even_now |= 1U << slot;
  });
  if (even_now == 0) meet(arrival, before);
  const StateSpace::Row& row = space_.dims()[dim].from;
  for (std::uint8_t place = 0; place < row.count; ++place) {
    const auto [slot, symbol] = row.cutters[place];
    const bool comes = (arrival.slots >> slot & 1U) != 0;
    if (StateSpace::symbol_of(state_, slot) == symbol ? comes : !comes) return;
    if (!comes || symbol == even) continue;
    before = StateSpace::with(before, slot, symbol);
    even_now &= ~(1U << slot);
    if (even_now == 0) meet(arrival, before);
  }
}

void RemainingTime::meet(const Arrival& arrival, DistState before) {
  std::int64_t bytes = space_.other_bytes();
  for (std::size_t dim = 0; dim < lengths_.size(); ++dim) {
    const Whereabouts place = kFirstDim + dim;
    const std::int64_t length = place == arrival.from
                                    ? length_of(dim, at_[place] | arrival.slots, before)
                                : place == arrival.to ? length_left_
                                                      : length_at_[dim];
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
  const std::uint64_t unlike =
      (state.bits ^ kOnes[slots] * even) & kOnes[slots] * StateSpace::kSymbolMask;
  if (unlike == 0) return lengths_[dim][slots];
  Slots special = 0;
  for_each_slot(slots, [&](std::uint8_t slot) {
    if (StateSpace::symbol_of({unlike}, slot) != 0) special |= 1U << slot;
  });
  for (const StateSpace::Row* row : {&space_.dims()[dim].from, &space_.dims()[dim].to}) {
    Slots first = 0;  // that cut as this end has it
    for (std::uint8_t place = 0; place < row->count; ++place) {
      const StateSpace::Cutter cutter = row->cutters[place];
      const bool is_here = (slots >> cutter.slot & 1U) != 0;
      if (!is_here || StateSpace::symbol_of(state, cutter.slot) != cutter.symbol) break;
      first |= 1U << cutter.slot;
      if ((special & ~first) != 0) continue;
      return longest_part(space_.cut_length(0, cutter), rates_[slots & ~first].ranks);
    }
  }
  return kNever;
}

}  // namespace tegula::inner
