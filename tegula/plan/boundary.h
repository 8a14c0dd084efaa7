// How a tensor goes on beyond its ends.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/spec/interval.h"

namespace tegula {

enum class Boundary : std::uint8_t {
  Zeros,     // with zeros
  Clipped,   // not at all
  Periodic,  // at its other end
  Reflect,   // back from where it came, the last element not repeated
  Nearest    // with its last element, again and again
};

namespace inner {

// The elements that stand in an interval which may reach beyond a dim of `size` elements, as
// intervals of the dim, in order. Zeros: those beyond stay beyond. Clipped: there are fewer. For
// the others the dim has elements, and for Reflect the interval reaches beyond it by less than its
// size; see can_continue.
std::vector<Interval> continued(const Interval& interval, std::int64_t size, Boundary boundary);
bool can_continue(const Interval& interval, std::int64_t size, Boundary boundary);

}  // namespace inner
}  // namespace tegula
