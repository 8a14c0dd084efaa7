// Ends: the states in which one step may end.
#pragma once

#include <cstdint>
#include <span>

#include "tegula/plan/dist_state.h"
#include "tegula/plan/search_steps.h"

namespace tegula::inner {

// They differ only in the order of the axes that come to a dim together, which changes neither
// tiles nor costs. A set of them is a few words, however many orders there are.
struct Ends {
  static constexpr std::uint8_t kNoSlot = 0xff;

  DistState behind;                  // each of `slots` in the first place that is free
  std::uint32_t slots = 0;           // in every order; one bit each
  std::uint8_t not_first = kNoSlot;  // this one of them does not come first
};

// The bits to add to a state in which each of the slots is in the first free place, one number per
// order of them.
std::span<const std::uint64_t> orders_of(std::uint32_t slots);

template <class Visit>
void for_each_state(const Ends& ends, Visit visit) {
  const std::uint64_t unlike =
      ends.not_first == Ends::kNoSlot ? 0 : place_bits(ends.not_first, StateSpace::kPlaceMask);
  for (std::uint64_t order : orders_of(ends.slots)) {
    if (unlike == 0 || (order & unlike) != 0) visit(DistState{ends.behind.bits + order});
  }
}

inline bool contains(const Ends& ends, DistState state) {
  if (StateSpace::without_order(ends.behind) != StateSpace::without_order(state)) return false;
  bool is_found = false;
  for_each_state(ends, [&](DistState end) { is_found = is_found || end == state; });
  return is_found;
}

}  // namespace tegula::inner
