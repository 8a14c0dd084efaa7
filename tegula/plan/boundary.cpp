#include "tegula/plan/boundary.h"

#include <algorithm>

namespace tegula::inner {
namespace {

// The element that stands at a place.
std::int64_t element_at(std::int64_t place, std::int64_t size, Boundary boundary) {
  switch (boundary) {
    case Boundary::Zeros:
    case Boundary::Clipped:
      return place;
    case Boundary::Periodic:
      return ((place % size) + size) % size;
    case Boundary::Reflect:
      return place < 0 ? -place : place >= size ? 2 * (size - 1) - place : place;
    case Boundary::Nearest:
      return std::clamp<std::int64_t>(place, 0, size - 1);
  }
  return place;
}

}  // namespace

std::vector<Interval> continued(const Interval& interval, std::int64_t size, Boundary boundary) {
  if (boundary == Boundary::Zeros) return {interval};
  if (boundary == Boundary::Clipped) {
    const std::int64_t begin = std::clamp<std::int64_t>(interval.begin, 0, size);
    return {{begin, std::clamp<std::int64_t>(interval.end(), begin, size) - begin}};
  }
  std::vector<Interval> intervals;
  for (std::int64_t place = interval.begin; place < interval.end();) {
    const std::int64_t element = element_at(place, size, boundary);
    // a run of what follows it in the dim
    const bool runs = boundary == Boundary::Periodic || (place >= 0 && place < size);
    const std::int64_t run = runs ? std::min(size - element, interval.end() - place) : 1;
    intervals.push_back({element, run});
    place += run;
  }
  return intervals;
}

bool can_continue(const Interval& interval, std::int64_t size, Boundary boundary) {
  const bool is_within = interval.size == 0 || (interval.begin >= 0 && interval.end() <= size);
  switch (boundary) {
    case Boundary::Zeros:
    case Boundary::Clipped:
      return true;
    case Boundary::Periodic:
    case Boundary::Nearest:
      return is_within || size > 0;
    case Boundary::Reflect:
      return is_within || (interval.begin > -size && interval.end() < 2 * size);
  }
  return false;
}

}  // namespace tegula::inner
