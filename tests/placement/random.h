// Numbers and texts by chance, the same on every machine for one seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tegula {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  // first ... last, both included
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first +
           static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool one_in(std::int64_t chances) { return between(1, chances) == 1; }

  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(
        between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1],
                values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

// `parts` sizes that add up to `total`; zeros are frequent.
inline std::vector<std::int64_t> random_sizes(Random& random, std::int64_t total,
                                              std::int64_t parts) {
  std::vector<std::int64_t> ends{total};
  for (std::int64_t part = 1; part < parts; ++part) ends.push_back(random.between(0, total));
  std::sort(ends.begin(), ends.end());
  std::vector<std::int64_t> sizes;
  for (std::int64_t end : ends) {
    std::int64_t before = 0;
    for (std::int64_t size : sizes) before += size;
    sizes.push_back(end - before);
  }
  return sizes;
}

// A text with one to four small faults: characters dropped, doubled, swapped or replaced, pieces
// repeated, numbers made extreme.
inline std::string damaged(Random& random, std::string text) {
  static const std::vector<std::string> kPieces = {"",
                                                   " ",
                                                   "[",
                                                   "]",
                                                   "(",
                                                   ")",
                                                   ",",
                                                   "=",
                                                   ":",
                                                   "-",
                                                   "0",
                                                   "-1",
                                                   "7",
                                                   "S(",
                                                   "_S(",
                                                   "P",
                                                   "M",
                                                   "R",
                                                   "S(0)[0]",
                                                   "blocks=",
                                                   "sizes=",
                                                   "[[",
                                                   "]]",
                                                   "()",
                                                   "@",
                                                   "{",
                                                   "}",
                                                   " of ",
                                                   " over ",
                                                   " as ",
                                                   " on ",
                                                   "f32",
                                                   "\n",
                                                   "\xff",
                                                   "999",
                                                   "9223372036854775807",
                                                   "-9223372036854775808",
                                                   "9223372036854775808",
                                                   "4611686018427387904"};
  const std::int64_t faults = random.between(1, 4);
  for (std::int64_t fault = 0; fault < faults; ++fault) {
    const auto size = static_cast<std::int64_t>(text.size());
    const auto begin = static_cast<std::size_t>(random.between(0, size));
    const auto length = static_cast<std::size_t>(random.between(0, 3));
    const std::string piece = text.substr(begin, length);
    switch (random.between(0, 3)) {
      case 0:
        text.erase(begin, length);
        break;
      case 1:
        text.replace(begin, length, random.pick(kPieces));
        break;
      case 2:
        text.insert(begin, random.pick(kPieces));
        break;
      case 3:
        text.insert(static_cast<std::size_t>(random.between(0, size)), piece);
        break;
    }
  }
  return text;
}

}  // namespace tegula
