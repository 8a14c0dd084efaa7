#include "tegula/plan/places.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tests/placement/random.h"

namespace tegula::inner {
namespace places_test {

std::vector<std::int64_t> elements(const Intervals& intervals) {
  std::vector<std::int64_t> all;
  for (const Interval& interval : intervals) {
    for (std::int64_t element = interval.begin; element < interval.end(); ++element) {
      all.push_back(element);
    }
  }
  return all;
}

// Some of [0, 12), in any order, empty ones among them.
Intervals generated(Random& random) {
  Intervals intervals;
  std::int64_t begin = 0;
  for (std::int64_t size : random_sizes(random, 12, 5)) {
    if (!random.one_in(3)) intervals.push_back({begin, size});
    begin += size;
  }
  random.shuffle(intervals);
  return intervals;
}

TEST(PlacesLaw, WhatLiesAtThePlacesIsWhatIsWanted) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const Intervals held = generated(random);
    const Intervals wanted = common(generated(random), held);
    const std::vector<std::int64_t> all = elements(held);
    std::vector<std::int64_t> found;
    for (std::int64_t place : elements(places_of(wanted, held))) {
      found.push_back(all.at(static_cast<std::size_t>(place)));
    }
    EXPECT_EQ(found, elements(wanted)) << to_string(held) << " wanted " << to_string(wanted);
  }
}

TEST(PlacesLaw, CommonElementsAreThoseOfBothInTheFirstOnesOrder) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    const Intervals wanted = generated(random);
    const Intervals held = generated(random);
    const std::vector<std::int64_t> all = elements(held);
    std::vector<std::int64_t> both;
    for (std::int64_t element : elements(wanted)) {
      if (std::find(all.begin(), all.end(), element) != all.end()) both.push_back(element);
    }
    EXPECT_EQ(elements(common(wanted, held)), both);
    EXPECT_EQ(count(common(wanted, held)), static_cast<std::int64_t>(both.size()));
  }
}

TEST(Places, NeighboursAreOneInterval) {
  EXPECT_EQ(places_of({{0, 2}, {2, 3}}, {{4, 1}, {0, 4}}), (Intervals{{1, 4}, {0, 1}}));
  EXPECT_EQ(places_of({{0, 5}}, {{0, 2}, {2, 3}}), (Intervals{{0, 5}}));
  EXPECT_EQ(places_of({{3, 0}}, {{0, 2}}), Intervals{});
}

TEST(Places, AnElementThatIsNotHeldIsABug) {
  EXPECT_THROW(places_of({{0, 3}}, {{0, 2}}), InternalError);
}

}  // namespace places_test
}  // namespace tegula::inner
