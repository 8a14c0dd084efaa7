// What the planner's search and its bound both speak of: the kinds of steps, by the transitions
// that they make, and sets of slots.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "tegula/plan/dist_state.h"
#include "tegula/plan/transition.h"

namespace tegula::inner {

// From the table of transitions.
inline constexpr StepKind kGather = *step_kind(PlacementKind::Shard, PlacementKind::Replicate);
inline constexpr StepKind kTurn = *step_kind(PlacementKind::Shard, PlacementKind::Shard);
inline constexpr StepKind kPad = *step_kind(PlacementKind::Shard, PlacementKind::Partial);
inline constexpr StepKind kReduce = *step_kind(PlacementKind::Partial, PlacementKind::Replicate);
inline constexpr StepKind kReduceScatter = *step_kind(PlacementKind::Partial, PlacementKind::Shard);
inline constexpr StepKind kSlice = *step_kind(PlacementKind::Replicate, PlacementKind::Shard);
inline constexpr StepKind kOwe = *step_kind(PlacementKind::Replicate, PlacementKind::Partial);

// The slots whose bits are set, in order.
template <class Visit>
void for_each_slot(std::uint32_t slots, Visit visit) {
  for (; slots != 0; slots &= slots - 1) visit(static_cast<std::uint8_t>(std::countr_zero(slots)));
}

// By slots: 1 as the symbol of each. Times some bits: the same bits for each.
inline constexpr auto kOnes = [] {
  std::array<std::uint64_t, 1U << StateSpace::kMostSlots> ones{};
  for (std::size_t slots = 0; slots < ones.size(); ++slots) {
    for (std::size_t slot = 0; slot < StateSpace::kMostSlots; ++slot) {
      ones[slots] |= std::uint64_t{slots >> slot & 1U} << StateSpace::kSlotBits * slot;
    }
  }
  return ones;
}();

constexpr std::uint64_t place_bits(std::uint8_t slot, std::uint64_t place) {
  return place << (StateSpace::kSlotBits * slot + StateSpace::kSymbolBits);
}

}  // namespace tegula::inner
