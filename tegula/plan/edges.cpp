// The idea: take the state apart once, then change only the ten bits of the axes that move and the
// lengths of the one or two dims that they leave and come to. The order of axes that cut evenly
// changes neither lengths nor cost: it is left open. A cut that is not even stands behind the axes
// that an end has there, so such cuts come first, and the last of them says how long pieces are.
#include "tegula/plan/edges.h"

#include "tegula/plan/search_steps.h"

namespace tegula::inner {
namespace {

using Symbol = StateSpace::Symbol;

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

constexpr StateSpace::Cutter kNoCutter{Ends::kNoSlot, 0};

std::int64_t divided(std::int64_t length, std::int64_t ranks) {
  return length / ranks + (length % ranks == 0 ? 0 : 1);
}

DistState without(DistState state, std::uint32_t slots) {
  return {state.bits & ~(kOnes[slots] * StateSpace::kSlotMask)};
}

}  // namespace

Edges::Edges(const StateSpace& space, const CostModel& model) : space_(space) {
  std::vector<std::size_t> axes;
  for (Slots slots = 0; slots < 1U << space.slots().size(); ++slots) {
    axes.clear();
    for_each_slot(slots, [&](std::uint8_t slot) { axes.push_back(space.slots()[slot].axis); });
    rates_.push_back(rates_of(model, space.mesh(), axes));
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
      add({kGather, slots, dim, length}, {without(state_, slots)});
      go_to_dims({kTurn, slots, dim, length});
      reorder(slots, {dim, first});
      if (first + 1 != row.count) continue;
      const std::uint8_t goal = space_.goal_of(slot);
      if (can_owe_in_the_end(slot) && space_.owed_op(slot, goal) == ReduceOp::Sum) {
        add({kPad, slots, dim, length}, {StateSpace::with(state_, slot, goal)});
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
      add({*kind, bit(slot), kNoDim, 0}, {StateSpace::with(state_, slot, Symbol::kOwedAtTo)});
    }
  }
}

void Edges::reduce(Slots slots) {
  add({kReduce, slots, kNoDim, 0}, {without(state_, slots)});
  go_to_dims({kReduceScatter, slots, kNoDim, 0});
}

void Edges::leave_replicas() {
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    if (view_.symbols[slot] != Symbol::kReplicate) continue;
    go_to_dims({kSlice, bit(slot), kNoDim, 0});
    if (can_owe_in_the_end(slot)) {
      add({kOwe, bit(slot), kNoDim, 0}, {StateSpace::with(state_, slot, space_.goal_of(slot))});
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
    const Place place{dim, view_.dims[dim].count};
    go_to_evenly(departure, place, Ends::kNoSlot);
    if (!space_.is_even(dim)) go_to_cuts_of_ends(departure, place, kNoCutter);
  }
}

// The first of them has to change, else the others could do so without it.
void Edges::reorder(Slots slots, Place place) {
  const bool is_one = std::has_single_bit(slots);
  const Departure departure{is_one ? kTurn : StepKind::Permute, slots, kNoDim, 0};
  const StateSpace::Cutter old = view_.dims[place.dim].cutters[place.count];
  const bool was_even = StateSpace::cut_of(old.symbol) == StateSpace::kEven;
  if (!was_even || !is_one) go_to_evenly(departure, place, was_even ? old.slot : Ends::kNoSlot);
  if (!space_.is_even(place.dim)) go_to_cuts_of_ends(departure, place, old);
}

void Edges::go_to_evenly(const Departure& departure, Place place, std::uint8_t not_first) {
  const auto [dim, count] = place;
  const std::uint64_t bits =
      StateSpace::shard_symbol(dim, StateSpace::kEven) | count << StateSpace::kSymbolBits;
  const DistState behind{without(state_, departure.slots).bits | kOnes[departure.slots] * bits};
  const std::int64_t length = view_.dims[dim].lengths[count];
  add(departure, {behind, departure.slots, not_first}, dim,
      divided(length, rates_[departure.slots].ranks));
}

void Edges::go_to_cuts_of_ends(const Departure& departure, Place place, StateSpace::Cutter unlike) {
  const auto [dim, count] = place;
  const StateSpace::Dim& ends = space_.dims()[dim];
  for (const StateSpace::Row* end : {&ends.from, &ends.to}) {
    if (!matches(view_.dims[dim], *end, count)) continue;
    Slots waiting = departure.slots;
    DistState state = without(state_, waiting);
    for (std::uint8_t at = count; at < end->count; ++at) {
      const StateSpace::Cutter cutter = end->cutters[at];
      const StateSpace::CutOf cut = StateSpace::cut_of(cutter.symbol);
      if ((waiting & bit(cutter.slot)) == 0 || (at == count && cutter == unlike)) break;
      if (cut == StateSpace::kCutOfFrom && cutter.symbol != space_.goal_of(cutter.slot)) break;
      waiting &= ~bit(cutter.slot);
      state = StateSpace::with(state, cutter.slot, cutter.symbol, at);
      if (cut == StateSpace::kEven) continue;
      if (end == &ends.to && matches(*end, ends.from, at + 1U)) continue;  // met at the other end
      const std::uint64_t bits =
          StateSpace::shard_symbol(dim, StateSpace::kEven) | (at + 1ULL) << StateSpace::kSymbolBits;
      add(departure, {{state.bits | kOnes[waiting] * bits}, waiting}, dim,
          divided(space_.cut_length(0, cutter), rates_[waiting].ranks));
    }
  }
}

void Edges::add(const Departure& departure, const Ends& ends, std::size_t dim,
                std::int64_t length) {
  const std::int64_t bytes = space_.bytes_with(view_, departure.dim, departure.length, dim, length);
  const StepCost cost = cost_of(departure.kind, rates_[departure.slots], view_.bytes, bytes);
  edges_.push_back({cost.picoseconds, peak_of(view_.bytes, bytes), ends});
}

}  // namespace tegula::inner
