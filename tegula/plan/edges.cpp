// The idea: take the state apart once, then change only the ten bits of the axes that move and the
// lengths of the one or two dims that they leave and come to. Where all cuts are even, the order of
// the axes changes neither lengths nor cost: the bits of all orders are looked up in a table.
#include "tegula/plan/edges.h"

#include "tegula/plan/search_steps.h"

namespace tegula {
namespace {

using Symbol = StateSpace::Symbol;

constexpr std::uint64_t kNothing = 0;

constexpr std::uint32_t bit(std::uint8_t slot) { return 1U << slot; }

bool is_owed(std::uint8_t symbol) {
  return symbol == Symbol::kOwedAtFrom || symbol == Symbol::kOwedAtTo;
}

bool matches(const StateSpace::Row& row, const StateSpace::Row& end, std::size_t count) {
  if (count > end.count) return false;
  for (std::size_t place = 0; place < count; ++place) {
    if (row.cutters[place] != end.cutters[place]) return false;
  }
  return true;
}

// The same ten bits for each of the slots.
std::uint64_t spread(std::uint32_t slots, std::uint64_t bits) {
  std::uint64_t result = 0;
  for_each_slot(slots,
                [&](std::uint8_t slot) { result |= bits << (StateSpace::kSlotBits * slot); });
  return result;
}

constexpr std::uint64_t place_bits(std::uint8_t slot, std::uint64_t place) {
  return place << (StateSpace::kSlotBits * slot + StateSpace::kSymbolBits);
}

void list_orders(std::uint32_t waiting, std::uint64_t place, std::uint64_t bits,
                 std::vector<std::uint64_t>& orders) {
  if (waiting == 0) orders.push_back(bits);
  for_each_slot(waiting, [&](std::uint8_t slot) {
    list_orders(waiting & ~bit(slot), place + 1, bits | place_bits(slot, place), orders);
  });
}

}  // namespace

Edges::Edges(const StateSpace& space, const CostModel& model) : space_(space) {
  std::vector<std::size_t> axes;
  for (Slots slots = 0; slots < 1U << space.slots().size(); ++slots) {
    axes.clear();
    for_each_slot(slots, [&](std::uint8_t slot) { axes.push_back(space.slots()[slot].axis); });
    rates_.push_back(rates_of(model, space.mesh(), axes));
    orders_.emplace_back();
    list_orders(slots, 0, 0, orders_.back());
  }
}

const std::vector<Edge>& Edges::from(DistState state) {
  state_ = state;
  space_.take_apart(state, view_);
  owed_class_ = space_.fixed_owed_class();
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    if (is_owed(view_.symbols[slot])) owed_class_ = space_.owed_class(slot, view_.symbols[slot]);
  }
  edges_.clear();
  ends_.clear();
  leave_dims();
  reduce();
  leave_replicas();
  return edges_;
}

void Edges::leave_dims() {
  for (std::size_t dim = 0; dim < space_.dims().size(); ++dim) {
    const StateSpace::View::Cutters& row = view_.dims[dim];
    Slots slots = 0;
    for (std::size_t first = row.count; first-- > 0;) {
      const auto [slot, symbol] = row.cutters[first];
      if (StateSpace::cut_of(symbol) == StateSpace::kCutOfTo) break;
      slots |= bit(slot);
      if (!can_act_together(slots)) break;
      const std::int64_t length = row.lengths[first];
      DistState replicated = state_;
      for_each_slot(slots, [&](std::uint8_t one) {
        replicated = StateSpace::with(replicated, one, Symbol::kReplicate);
      });
      add({kGather, slots, dim, length}, replicated);
      go_to_dims({kTurn, slots, dim, length});
      reorder(slots, dim, first);
      if (first + 1 != row.count) continue;
      const std::uint8_t goal = space_.goal_of(slot);
      if (can_owe_in_the_end(slot) && space_.owed_op(slot, goal) == ReduceOp::Sum) {
        add({kPad, slots, dim, length}, StateSpace::with(state_, slot, goal));
      }
    }
  }
}

void Edges::reduce() {
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    if (!is_owed(view_.symbols[slot])) continue;
    // Every set of axes is met once, at its first.
    const Slots others = owing_like(slot) & ~((bit(slot) << 1U) - 1);
    for (Slots more = others;; more = (more - 1) & others) {
      if (can_act_together(bit(slot) | more)) reduce(bit(slot) | more);
      if (more == 0) break;
    }
    const auto [now, then] = space_.slots()[slot].owed;
    if (view_.symbols[slot] != Symbol::kOwedAtFrom || then == nullptr) continue;
    if (const std::optional<StepKind> kind = step_kind(*now, *then)) {
      add({*kind, bit(slot), kNoDim, 0}, StateSpace::with(state_, slot, Symbol::kOwedAtTo));
    }
  }
}

void Edges::reduce(Slots slots) {
  DistState replicated = state_;
  for_each_slot(slots, [&](std::uint8_t one) {
    replicated = StateSpace::with(replicated, one, Symbol::kReplicate);
  });
  add({kReduce, slots, kNoDim, 0}, replicated);
  go_to_dims({kReduceScatter, slots, kNoDim, 0});
}

void Edges::leave_replicas() {
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    if (view_.symbols[slot] != Symbol::kReplicate) continue;
    go_to_dims({kSlice, bit(slot), kNoDim, 0});
    if (can_owe_in_the_end(slot)) {
      add({kOwe, bit(slot), kNoDim, 0}, StateSpace::with(state_, slot, space_.goal_of(slot)));
    }
  }
}

Edges::Slots Edges::owing_like(std::uint8_t slot) const {
  const ReduceOp op = space_.owed_op(slot, view_.symbols[slot]);
  Slots alike = 0;
  for (std::uint8_t other = 0; other < space_.slot_count(); ++other) {
    const std::uint8_t symbol = view_.symbols[other];
    if (is_owed(symbol) && space_.owed_op(other, symbol) == op) alike |= bit(other);
  }
  return alike;
}

bool Edges::can_owe_in_the_end(std::uint8_t slot) const {
  const int goal = space_.owed_class(slot, space_.goal_of(slot));
  return goal >= 0 && (owed_class_ < 0 || owed_class_ == goal);
}

bool Edges::can_act_together(Slots slots) const {
  if (std::has_single_bit(slots)) return true;
  bool can = true;
  for_each_slot(slots, [&](std::uint8_t slot) { can = can && space_.slots()[slot].can_merge; });
  return can;
}

void Edges::go_to_dims(const Departure& departure) {
  for (std::size_t dim = 0; dim < space_.dims().size(); ++dim) {
    if (dim == departure.dim) continue;
    if (space_.is_even(dim)) {
      go_to_evenly(departure, dim, view_.dims[dim].count, kNothing);
    } else {
      arrive(departure, arrival_at(dim, view_.dims[dim].count), departure.slots);
    }
  }
}

// The first of them has to change, else the others could do so without it.
void Edges::reorder(Slots slots, std::size_t dim, std::size_t first) {
  const bool is_one = std::has_single_bit(slots);
  const Departure departure{is_one ? kTurn : StepKind::Permute, slots, kNoDim, 0};
  if (space_.is_even(dim)) {
    const std::uint8_t old = view_.dims[dim].cutters[first].slot;
    if (!is_one) go_to_evenly(departure, dim, first, place_bits(old, StateSpace::kPlaceMask));
    return;
  }
  const Arrival empty = arrival_at(dim, first);
  for_each_slot(slots, [&](std::uint8_t slot) {
    for_each_cut(empty, slot, [&](const Arrival& arrival) {
      if (arrival.state == state_) return;
      arrive(departure, arrival, slots & ~bit(slot));
    });
  });
}

// Behind the first `count` axes that cut the dim, in all orders that have one of the bits `unlike`.
void Edges::go_to_evenly(const Departure& departure, std::size_t dim, std::size_t count,
                         std::uint64_t unlike) {
  const std::size_t first = ends_.size();
  const std::uint8_t symbol = StateSpace::shard_symbol(dim, StateSpace::kEven);
  const std::uint64_t others = state_.bits & ~spread(departure.slots, StateSpace::kSlotMask);
  const std::uint64_t behind = spread(departure.slots, symbol | count << StateSpace::kSymbolBits);
  for (std::uint64_t order : orders_[departure.slots]) {
    if (unlike == kNothing || (order & unlike) != 0) ends_.push_back({others + behind + order});
  }
  const std::int64_t ranks = rates_[departure.slots].ranks;
  const std::int64_t length = view_.dims[dim].lengths[count];
  close(departure, first, dim, length / ranks + (length % ranks == 0 ? 0 : 1));
}

Edges::Arrival Edges::arrival_at(std::size_t dim, std::size_t count) const {
  const StateSpace::View::Cutters& row = view_.dims[dim];
  return {dim,
          count,
          row.lengths[count],
          matches(row, space_.dims()[dim].from, count),
          matches(row, space_.dims()[dim].to, count),
          state_};
}

template <class Visit>
void Edges::for_each_cut(const Arrival& arrival, std::uint8_t slot, Visit visit) const {
  const StateSpace::Dim& dim = space_.dims()[arrival.dim];
  const auto next_is = [&](const StateSpace::Row& end, StateSpace::Cutter cutter) {
    return arrival.count < end.count && end.cutters[arrival.count] == cutter;
  };
  for (StateSpace::CutOf cut : {StateSpace::kEven, StateSpace::kCutOfFrom, StateSpace::kCutOfTo}) {
    const StateSpace::Cutter cutter{slot, StateSpace::shard_symbol(arrival.dim, cut)};
    if (cut == StateSpace::kCutOfFrom && cutter.symbol != space_.goal_of(slot)) continue;
    Arrival next = arrival;
    next.is_as_from = arrival.is_as_from && next_is(dim.from, cutter);
    next.is_as_to = arrival.is_as_to && next_is(dim.to, cutter);
    if (cut != StateSpace::kEven && !next.is_as_from && !next.is_as_to) continue;
    next.length = space_.cut_length(arrival.length, cutter);
    next.state = StateSpace::with(arrival.state, slot, cutter.symbol, arrival.count);
    ++next.count;
    visit(next);
  }
}

void Edges::arrive(const Departure& departure, const Arrival& arrival, Slots waiting) {
  if (waiting == 0) {
    add(departure, arrival.state, arrival.dim, arrival.length);
    return;
  }
  for_each_slot(waiting, [&](std::uint8_t slot) {
    for_each_cut(arrival, slot,
                 [&](const Arrival& next) { arrive(departure, next, waiting & ~bit(slot)); });
  });
}

void Edges::add(const Departure& departure, DistState to, std::size_t dim, std::int64_t length) {
  ends_.push_back(to);
  close(departure, ends_.size() - 1, dim, length);
}

void Edges::close(const Departure& departure, std::size_t first, std::size_t dim,
                  std::int64_t length) {
  const std::int64_t bytes = space_.bytes_with(view_, departure.dim, departure.length, dim, length);
  const StepCost cost = cost_of(departure.kind, rates_[departure.slots], view_.bytes, bytes);
  edges_.push_back({cost.picoseconds, peak_of(view_.bytes, bytes),
                    static_cast<std::uint32_t>(first),
                    static_cast<std::uint32_t>(ends_.size() - first)});
}

}  // namespace tegula
