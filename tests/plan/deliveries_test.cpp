#include "tegula/plan/deliveries.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tegula/base/error.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace deliveries_test {

std::vector<std::int64_t> elements(const std::vector<Interval>& intervals) {
  std::vector<std::int64_t> all;
  for (const Interval& interval : intervals) {
    for (std::int64_t i = interval.begin; i < interval.end(); ++i) all.push_back(i);
  }
  return all;
}

// The whole tensor's element at each place of a rank's tile.
std::map<Coordinate, Coordinate> tile_of(const DTensorSpec& spec, std::int64_t rank) {
  std::map<Coordinate, Coordinate> tile{{{}, {}}};
  for (const auto& intervals : slice_at(spec, spec.mesh().coordinate_of(rank).value())) {
    const std::vector<std::int64_t> held = elements(intervals);
    std::map<Coordinate, Coordinate> longer;
    for (const auto& [place, element] : tile) {
      for (std::size_t i = 0; i < held.size(); ++i) {
        Coordinate p = place, e = element;
        p.push_back(static_cast<std::int64_t>(i));
        e.push_back(held[i]);
        longer[p] = e;
      }
    }
    tile = std::move(longer);
  }
  return tile;
}

// Every place of a box, in order.
std::vector<Coordinate> places_in(const Box& box) {
  std::vector<std::int64_t> sizes;
  for (const Interval& interval : box) sizes.push_back(interval.size);
  std::vector<Coordinate> places = all_coordinates(sizes);
  for (Coordinate& place : places) {
    for (std::size_t dim = 0; dim < box.size(); ++dim) place[dim] += box[dim].begin;
  }
  return places;
}

TEST(DeliveriesLaw, EveryElementComesOnceFromARankThatHasIt) {
  Random random(4);
  for (int round = 0; round < 400; ++round) {
    const TensorMeta meta = generated_meta(random, 3, 6);
    const DTensorSpec from = generated_spec(random, generated_mesh(random, 3), meta);
    const DTensorSpec to = generated_spec(random, generated_mesh(random, 3), meta);
    const std::string text = to_string(from) + " -> " + to_string(to);
    for (std::int64_t receiver : to.mesh().root().ranks()) {
      std::map<Coordinate, Coordinate> got;
      for (const Delivery& delivery : deliveries(from, to, receiver)) {
        const std::map<Coordinate, Coordinate> sent = tile_of(from, delivery.sender);
        const std::vector<Coordinate> begin = places_in(delivery.from);
        const std::vector<Coordinate> end = places_in(delivery.to);
        ASSERT_EQ(begin.size(), end.size()) << text;
        for (std::size_t i = 0; i < begin.size(); ++i) {
          EXPECT_TRUE(got.emplace(end[i], sent.at(begin[i])).second) << text;
        }
        EXPECT_EQ(from.mesh().fiber_of(delivery.sender).value(),
                  from.mesh().fiber_of(receiver).value_or(0))
            << text;
      }
      EXPECT_EQ(got, tile_of(to, receiver)) << text;
    }
  }
}

TEST(Deliveries, ARankKeepsWhatItHas) {
  const DTensorSpec from = parse_spec("f32[8] on (a=4) as [R]");
  const DTensorSpec to = parse_spec("f32[8] on (x=2, y=2) as [S(0), R]");
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    for (const Delivery& delivery : deliveries(from, to, rank)) EXPECT_EQ(delivery.sender, rank);
  }
}

TEST(Deliveries, ReplicasTakeTurns) {
  const DTensorSpec from = parse_spec("f32[8] on (a=4) as [R]");
  const DTensorSpec to = parse_spec("f32[8] on (b=4) over [4, 8, 12, 16] as [S(0)]");
  std::set<std::int64_t> senders;
  for (std::int64_t rank : to.mesh().ranks()) {
    for (const Delivery& delivery : deliveries(from, to, rank)) senders.insert(delivery.sender);
  }
  EXPECT_EQ(senders.size(), 4U);
}

TEST(Deliveries, AReceiverOutsideOfTheMeshIsRefused) {
  const DTensorSpec spec = parse_spec("f32[8] on (a=2) as [R]");
  EXPECT_THROW(deliveries(spec, spec, 2), UsageError);
  EXPECT_THROW(deliveries(parse_spec("f32[7] on (a=2) as [R]"), spec, 0), UsageError);
}

}  // namespace deliveries_test
}  // namespace tegula::inner
