#include "tegula/plan/interval_exchange.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace interval_exchange_test {

std::vector<std::int64_t> elements(const std::vector<Interval>& intervals) {
  std::vector<std::int64_t> all;
  for (const Interval& interval : intervals) {
    for (std::int64_t i = interval.begin; i < interval.end(); ++i) all.push_back(i);
  }
  return all;
}

// What each shard holds, by the number of the shard.
std::vector<std::vector<std::int64_t>> tiles_of(const DTensorSpec& spec, std::size_t dim) {
  const DimCut& cut = spec.dim_cuts()[dim];
  std::vector<std::vector<std::int64_t>> tiles(static_cast<std::size_t>(cut.shard_count()));
  for (const Coordinate& at : all_coordinates(spec.mesh().shape())) {
    tiles[static_cast<std::size_t>(shard_at(cut, at))] = elements(cut.intervals(at));
  }
  return tiles;
}

std::vector<Interval> generated_intervals(Random& random, std::int64_t size) {
  std::vector<Interval> intervals;
  const std::int64_t count = random.between(0, 3);
  for (std::int64_t k = 0; k < count; ++k) {
    intervals.push_back({random.between(-2, size + 1), random.between(0, size + 2)});
  }
  return intervals;
}

TEST(IntervalExchangeLaw, EveryWantedElementComesOnceFromItsOwner) {
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    const TensorMeta meta = generated_meta(random, 3, 7);
    if (meta.ndim() == 0) continue;
    const DTensorSpec spec = generated_spec(random, generated_mesh(random, 3), meta);
    for (std::size_t dim = 0; dim < meta.shape().size(); ++dim) {
      const std::int64_t size = meta.shape()[dim];
      const DimCut& cut = spec.dim_cuts()[dim];
      const auto tiles = tiles_of(spec, dim);
      WantedIntervals wanted;
      std::vector<IntervalExchange> exchanges;
      for (std::size_t k = 0; k < tiles.size(); ++k) {
        wanted.push_back(generated_intervals(random, size));
      }
      for (std::size_t k = 0; k < tiles.size(); ++k) {
        exchanges.push_back(interval_exchange(cut, wanted, static_cast<std::int64_t>(k)));
      }
      bool crosses = false;
      for (std::size_t to = 0; to < tiles.size(); ++to) {
        const std::vector<std::int64_t> expected = elements(wanted[to]);
        ASSERT_EQ(exchanges[to].size, static_cast<std::int64_t>(expected.size()));
        std::vector<std::int64_t> got(expected.size(), -100);
        for (std::size_t from = 0; from < tiles.size(); ++from) {
          const auto sent = elements(exchanges[from].sent[to]);
          const auto places = elements(exchanges[to].received[from]);
          ASSERT_EQ(sent.size(), places.size()) << to_string(spec);
          crosses = crosses || (from != to && !sent.empty());
          for (std::size_t i = 0; i < sent.size(); ++i) {
            EXPECT_EQ(got[static_cast<std::size_t>(places[i])], -100) << to_string(spec);
            got[static_cast<std::size_t>(places[i])] =
                tiles[from][static_cast<std::size_t>(sent[i])];
          }
        }
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const bool is_outside = expected[i] < 0 || expected[i] >= size;
          EXPECT_EQ(got[i], is_outside ? -100 : expected[i]) << to_string(spec);
        }
      }
      for (const IntervalExchange& exchange : exchanges) {
        EXPECT_EQ(exchange.communicates, crosses) << to_string(spec);
      }
    }
  }
}

TEST(IntervalExchange, NeighboursSendTheirBorders) {
  const DTensorSpec spec = parse_spec("f32[6] on (a=3) as [S(0)]");
  const WantedIntervals wanted{{{-1, 4}}, {{1, 4}}, {{3, 4}}};
  const IntervalExchange middle = interval_exchange(spec.dim_cuts()[0], wanted, 1);
  EXPECT_EQ(middle.sent, (WantedIntervals{{{0, 1}}, {{0, 2}}, {{1, 1}}}));
  EXPECT_EQ(middle.received, (WantedIntervals{{{0, 1}}, {{1, 2}}, {{3, 1}}}));
  EXPECT_EQ(middle.size, 4);
  EXPECT_TRUE(middle.communicates);
}

TEST(IntervalExchange, NobodySendsIfAllHaveWhatTheyWant) {
  const DTensorSpec spec = parse_spec("f32[6] on (a=3) as [S(0)]");
  const WantedIntervals wanted{{{-5, 6}}, {{2, 2}}, {{5, 3}, {4, 1}}};
  EXPECT_FALSE(interval_exchange(spec.dim_cuts()[0], wanted, 0).communicates);
}

TEST(IntervalExchange, SaysIfAListIsMissing) {
  const DTensorSpec spec = parse_spec("f32[6] on (a=3) as [S(0)]");
  try {
    interval_exchange(spec.dim_cuts()[0], {{{0, 1}}}, 0);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: an exchange of intervals needs to know what every shard wants\n"
                 "  shards  3\n"
                 "  lists   1\n"
                 "  shard   0\n"
                 "  hint    give one list per shard, and a shard that exists");
  }
}

}  // namespace interval_exchange_test
}  // namespace tegula::inner
