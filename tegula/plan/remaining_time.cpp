// The idea: a step leaves one place (a dim, or owing one kind of reduction) for another. So there
// are at least as many collectives to come as there are places that some axis has to leave and can
// leave by a collective only: dims that are not cut by the first of the axes that should cut them
// in the end, and reductions that are owed and should not be. Each takes a latency, sends at least
// half of the least tile there is, and writes such a tile. What the tile at the goal has more than
// this one has to be sent too, and the goal's tile is written at last. Zeros around a shard are the
// one way to leave a dim, or to grow, without sending.
#include "tegula/plan/remaining_time.h"

#include <algorithm>
#include <bit>

namespace tegula {
namespace {

bool owes_a_sum(const StateSpace& space, std::uint8_t slot) {
  const std::uint8_t goal = space.goal_of(slot);
  return space.owed_class(slot, goal) >= 0 && space.owed_op(slot, goal) == ReduceOp::Sum;
}

bool is_mask(const Placement* placement) {
  return placement != nullptr && std::holds_alternative<MaskPartial>(*placement);
}

}  // namespace

RemainingTime::RemainingTime(const StateSpace& space, const CostModel& model) : space_(space) {
  space_.take_apart(space_.to(), goal_);
  std::int64_t whole = goal_.bytes;
  for (std::size_t dim = 0; dim < space_.dims().size(); ++dim) {
    const StateSpace::View::Cutters& row = goal_.dims[dim];
    const std::int64_t length = row.lengths[row.count];
    whole = length == 0 ? 0 : whole / length * row.lengths[0];
  }
  std::int64_t ranks = 1;
  for (std::uint8_t number = 0; number < space_.slot_count(); ++number) {
    const StateSpace::Slot& slot = space_.slots()[number];
    const Rates rates = rates_of(model, space_.mesh(), {slot.axis});
    const bool is_first = number == 0;
    best_.latency = is_first ? rates.latency : std::min(best_.latency, rates.latency);
    best_.per_byte = is_first ? rates.per_byte : std::min(best_.per_byte, rates.per_byte);
    best_.per_copied_byte = rates.per_copied_byte;
    ranks *= slot.ranks;
    can_rename_ = can_rename_ || is_mask(slot.owed[0]);
    can_pad_ = can_pad_ || owes_a_sum(space_, number);
  }
  least_tile_ = whole / ranks;
}

bool RemainingTime::has_to_be_left(std::size_t dim) const {
  const StateSpace::Row& now = view_.dims[dim];
  const StateSpace::Row& goal = goal_.dims[dim];
  std::size_t place = 0;
  while (place < now.count && place < goal.count && now.cutters[place] == goal.cutters[place]) {
    ++place;
  }
  if (place == now.count) return false;
  for (; place < now.count; ++place) {
    if (owes_a_sum(space_, now.cutters[place].slot)) return false;
  }
  return true;
}

std::int64_t RemainingTime::calls_needed() const {
  std::int64_t calls = 0;
  for (std::size_t dim = 0; dim < space_.dims().size(); ++dim) calls += has_to_be_left(dim) ? 1 : 0;
  std::uint32_t reductions = 0;
  for (std::uint8_t slot = 0; slot < space_.slot_count(); ++slot) {
    const std::uint8_t now = view_.symbols[slot];
    if (now == goal_.symbols[slot] || space_.owed_class(slot, now) < 0) continue;
    if (is_mask(space_.slots()[slot].owed[now - 1U])) continue;  // may only have to be renamed
    reductions |= 1U << static_cast<unsigned>(space_.owed_op(slot, now));
  }
  return calls + std::popcount(reductions);
}

std::int64_t RemainingTime::operator()(DistState state) {
  space_.take_apart(state, view_);
  const std::int64_t calls = calls_needed();
  if (calls == 0) return 0;
  const std::int64_t growth = can_pad_ ? 0 : goal_.bytes - view_.bytes;
  const std::int64_t sent = std::max(calls * (least_tile_ / 2), growth);
  const std::int64_t last = can_rename_ ? least_tile_ : goal_.bytes;
  const std::int64_t written = (calls - 1) * least_tile_ + last;
  // Every step rounds its time down, by less than 2.
  constexpr std::int64_t kRounding = 64;
  return std::max<std::int64_t>(0, time_of(best_, calls, sent, written) - kRounding);
}

}  // namespace tegula
