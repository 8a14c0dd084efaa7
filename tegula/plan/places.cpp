// The idea: sort what is held by its elements, remembering each interval's place; then every wanted
// interval meets a run of neighbours there, found by binary search.
#include "tegula/plan/places.h"

#include <algorithm>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

struct Held {
  Interval interval;
  std::int64_t place = 0;
};

std::vector<Held> sorted(const Intervals& held) {
  std::vector<Held> result;
  std::int64_t place = 0;
  for (const Interval& interval : held) {
    if (interval.size > 0) result.push_back({interval, place});
    place += interval.size;
  }
  std::sort(result.begin(), result.end(),
            [](const Held& a, const Held& b) { return a.interval.begin < b.interval.begin; });
  return result;
}

// Calls visit(elements, place of the first) for each part of `wanted` that is held.
template <class Visit>
void for_each_part(const Interval& wanted, const std::vector<Held>& held, Visit visit) {
  auto next = std::upper_bound(
      held.begin(), held.end(), wanted.begin,
      [](std::int64_t begin, const Held& one) { return begin < one.interval.end(); });
  for (; next != held.end() && next->interval.begin < wanted.end(); ++next) {
    const std::int64_t begin = std::max(wanted.begin, next->interval.begin);
    const std::int64_t end = std::min(wanted.end(), next->interval.end());
    visit(Interval{begin, end - begin}, next->place + begin - next->interval.begin);
  }
}

void append_merged(Intervals& intervals, const Interval& next) {
  if (next.size <= 0) return;
  if (!intervals.empty() && intervals.back().end() == next.begin) {
    intervals.back().size += next.size;
  } else {
    intervals.push_back(next);
  }
}

}  // namespace

std::int64_t count(const Intervals& intervals) {
  std::int64_t sum = 0;
  for (const Interval& interval : intervals) sum += interval.size;
  return sum;
}

Intervals places_of(const Intervals& wanted, const Intervals& held) {
  const std::vector<Held> index = sorted(held);
  Intervals places;
  for (const Interval& interval : wanted) {
    for_each_part(interval, index, [&](const Interval& elements, std::int64_t place) {
      append_merged(places, {place, elements.size});
    });
  }
  if (count(places) != count(wanted)) {
    throw InternalError("an element was looked up in a shard that does not hold it")
        .fact("wanted", to_string(wanted))
        .fact("held", to_string(held));
  }
  return places;
}

Intervals common(const Intervals& wanted, const Intervals& held) {
  const std::vector<Held> index = sorted(held);
  Intervals result;
  for (const Interval& interval : wanted) {
    for_each_part(interval, index,
                  [&](const Interval& elements, std::int64_t) { append_merged(result, elements); });
  }
  return result;
}

}  // namespace tegula::inner
