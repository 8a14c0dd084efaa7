// Intervals of a tensor dim, and the even rule that cuts one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tegula {

// The elements begin, begin + 1, ..., begin + size - 1 of a dim.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t end() const { return begin + size; }
  bool operator==(const Interval&) const = default;
};

// "0:3", as a slice is written
std::string to_string(const Interval& interval);
// "0:3" or "0:3, 8:11"
std::string to_string(const std::vector<Interval>& intervals);

namespace inner {

// Rounded up; a at least 0, b at least 1.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// What a rank gets of `length` elements by the even rule: chunks of ceil(length / ranks), of which
// trailing ones may be shorter or empty. An empty one begins at the end.
inline Interval even_chunk(std::int64_t length, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t chunk = ceil_div(length, ranks);
  // rank * chunk could overflow only if it is beyond the length anyway
  const std::int64_t begin =
      chunk == 0 || rank > length / chunk ? length : std::min(rank * chunk, length);
  return {begin, std::min(chunk, length - begin)};
}

}  // namespace inner

}  // namespace tegula
