#include "tegula/spec/dim_cut.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"
#include "tests/spec/reference.h"

namespace tegula {
namespace dim_cut_test {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// A dim, the axes that cut it as they were written, and what each shard must hold.
struct Case {
  std::int64_t size = 0;
  std::vector<CutAxis> axes;
  std::vector<Piece> shards;
};

std::string describe(const Case& one) {
  std::string text = std::to_string(one.size) + " elements";
  for (const CutAxis& axis : one.axes) {
    text += ", " + std::to_string(axis.ranks) + " ranks" + to_string(axis.cut);
  }
  return text;
}

// Where shard number `shard` lies in a mesh whose last axis cuts first, if `axes` say so.
Coordinate place_of(const Case& one, std::size_t shard) {
  Coordinate at(one.axes.size());
  for (std::size_t index = one.axes.size(); index-- > 0;) {
    const auto ranks = static_cast<std::size_t>(one.axes[index].ranks);
    at[one.axes[index].axis] = static_cast<std::int64_t>(shard % ranks);
    shard /= ranks;
  }
  return at;
}

void visit_all_sizes(std::int64_t total, std::int64_t parts, std::vector<std::int64_t>& sizes,
                     const std::function<void()>& visit) {
  if (parts == 1) {
    sizes.push_back(total);
    visit();
    sizes.pop_back();
    return;
  }
  for (std::int64_t first = 0; first <= total; ++first) {
    sizes.push_back(first);
    visit_all_sizes(total - first, parts - 1, sizes, visit);
    sizes.pop_back();
  }
}

// One axis: every number of blocks, every way to share a run of every block; and of few elements,
// every way to share them in two or three turns.
std::vector<Cut> all_cuts(std::int64_t size, std::int64_t ranks) {
  std::vector<Cut> cuts;
  for (std::int64_t blocks = 1; blocks <= size + 2; ++blocks) {
    cuts.push_back(Cut::in_blocks(blocks));
    if (size % blocks != 0) continue;
    std::vector<std::int64_t> sizes;
    visit_all_sizes(size / blocks, ranks, sizes, [&] { cuts.push_back(Cut({blocks}, {sizes})); });
    for (const std::int64_t turns : {2, 3}) {
      if (size / blocks > 4 || turns * ranks > 6) continue;
      visit_all_sizes(size / blocks, turns * ranks, sizes,
                      [&] { cuts.push_back(Cut({blocks}, {sizes})); });
    }
  }
  return cuts;
}

bool has_turns(const CutAxis& axis) {
  return !axis.cut.sizes().empty() &&
         static_cast<std::int64_t>(axis.cut.sizes().front().size()) > axis.ranks;
}

// An empty shard among ranks that take turns may stand anywhere.
std::vector<Interval> wherever_it_stands(const Case& one, std::size_t shard,
                                         std::vector<Interval> intervals) {
  const bool by_turns = std::any_of(one.axes.begin(), one.axes.end(), has_turns);
  if (by_turns && one.shards[shard].elements.empty()) {
    EXPECT_GE(intervals.front().begin, 0);
    EXPECT_LE(intervals.front().begin, one.size);
    intervals.front().begin = one.shards[shard].begin;
  }
  return intervals;
}

void extend(Random& random, Case& one, std::size_t axes, const std::function<void(Case&)>& visit) {
  if (one.axes.size() == axes) {
    visit(one);
    return;
  }
  for (std::int64_t ranks = 1; ranks <= 4; ++ranks) {
    std::vector<Cut> cuts =
        axes == 1 ? all_cuts(one.size, ranks) : cuts_that_fit(random, one.shards, ranks);
    if (axes == 3) {
      random.shuffle(cuts);
      cuts.resize(2);
    }
    for (const Cut& cut : cuts) {
      Case longer{one.size, one.axes, cut_pieces(one.shards, ranks, cut)};
      longer.axes.push_back({0, ranks, cut});
      extend(random, longer, axes, visit);
    }
  }
}

// All small dims cut by one to three axes in all forms, in the order of the mesh and in reverse.
int for_each_case(const std::function<void(const Case&)>& visit) {
  Random random(5);
  int count = 0;
  for (std::int64_t size = 0; size <= 13; ++size) {
    for (std::size_t axes = 1; axes <= 3; ++axes) {
      Case uncut{size, {}, {whole_dim(size)}};
      extend(random, uncut, axes, [&](Case& one) {
        if (::testing::Test::HasFatalFailure()) return;  // one is enough to read
        for (std::size_t index = 0; index < axes; ++index) {
          one.axes[index].axis = count % 2 == 0 ? index : axes - 1 - index;
        }
        visit(one);
        ++count;
      });
    }
  }
  return count;
}

constexpr int kFewestCases = 20'000;

TEST(DimCutLaw, EveryShardHoldsWhatDealingOutElementByElementGivesIt) {
  std::int64_t shards = 0;
  const int cases = for_each_case([&](const Case& one) {
    const DimCut cut(one.size, one.axes);
    ASSERT_EQ(cut.shard_count(), static_cast<std::int64_t>(one.shards.size()));
    for (std::size_t shard = 0; shard < one.shards.size(); ++shard) {
      const Coordinate at = place_of(one, shard);
      ASSERT_EQ(wherever_it_stands(one, shard, cut.intervals(at)), intervals_of(one.shards[shard]))
          << describe(one) << ", shard " << shard << ": " << to_string(cut.intervals(at)) << " for "
          << to_string(intervals_of(one.shards[shard]));
      ASSERT_EQ(cut.local_size(at), one.shards[shard].size())
          << describe(one) << ", shard " << shard;
      ++shards;
    }
  });
  EXPECT_GT(cases, kFewestCases);
  EXPECT_GT(shards, 200'000);
}

TEST(DimCutLaw, ShardsPartitionTheDim) {
  const int cases = for_each_case([](const Case& one) {
    const DimCut cut(one.size, one.axes);
    std::vector<int> holders(static_cast<std::size_t>(one.size));
    for (std::size_t shard = 0; shard < one.shards.size(); ++shard) {
      for (const Interval& interval : cut.intervals(place_of(one, shard))) {
        for (std::int64_t element = interval.begin; element < interval.end(); ++element) {
          ++holders.at(static_cast<std::size_t>(element));
        }
      }
    }
    ASSERT_EQ(holders, std::vector<int>(holders.size(), 1)) << describe(one);
  });
  EXPECT_GT(cases, kFewestCases);
}

TEST(DimCutLaw, IntervalsAddUpToTheLocalSizeAndAreNeitherEmptyNorNeighbours) {
  int empty_shards = 0;
  int several_intervals = 0;
  const int cases = for_each_case([&](const Case& one) {
    const DimCut cut(one.size, one.axes);
    for (std::size_t shard = 0; shard < one.shards.size(); ++shard) {
      const Coordinate at = place_of(one, shard);
      const std::vector<Interval> intervals = cut.intervals(at);
      ASSERT_FALSE(intervals.empty());
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < intervals.size(); ++i) {
        sum += intervals[i].size;
        if (intervals.size() > 1) {
          ASSERT_GT(intervals[i].size, 0) << describe(one);
        }
        if (i > 0) {
          ASSERT_GT(intervals[i].begin, intervals[i - 1].end()) << describe(one);
        }
      }
      ASSERT_EQ(sum, cut.local_size(at)) << describe(one);
      ASSERT_LE(static_cast<std::int64_t>(intervals.size()), cut.most_intervals()) << describe(one);
      ASSERT_GE(intervals.front().begin, 0);
      ASSERT_LE(intervals.back().end(), one.size);
      empty_shards += sum == 0 ? 1 : 0;
      several_intervals += intervals.size() > 1 ? 1 : 0;
    }
  });
  EXPECT_GT(cases, kFewestCases);
  EXPECT_GT(empty_shards, 10'000);
  EXPECT_GT(several_intervals, 10'000);
}

TEST(DimCutLaw, OwnersOfAnIntervalAreThoseThatHoldItsElements) {
  Random random(6);
  std::int64_t shares_checked = 0;
  const int cases = for_each_case([&](const Case& one) {
    const DimCut cut(one.size, one.axes);
    std::vector<Interval> asked = {{0, one.size}, {-3, 100}};
    for (int i = 0; i < 2; ++i)
      asked.push_back({random.between(-1, one.size), random.between(-1, one.size + 1)});
    for (const Interval& interval : asked) {
      std::vector<Share> expected;
      for (std::size_t shard = 0; shard < one.shards.size(); ++shard) {
        const auto shares =
            shares_of(one.shards[shard], static_cast<std::int64_t>(shard), interval);
        expected.insert(expected.end(), shares.begin(), shares.end());
      }
      ASSERT_EQ(cut.owners(interval), expected) << describe(one) << ", " << to_string(interval);
      shares_checked += static_cast<std::int64_t>(expected.size());
    }
  });
  EXPECT_GT(cases, kFewestCases);
  EXPECT_GT(shares_checked, 200'000);
}

TEST(DimCutLaw, PositionsOfShardsCountTheFirstAxisSlowest) {
  int shards = 0;
  for (const Coordinate& ranks : all_coordinates({5, 5, 5})) {
    std::vector<CutAxis> axes;
    for (std::size_t axis = 0; axis < 3; ++axis) axes.push_back({axis, ranks[axis] + 1, Cut()});
    const DimCut cut(13, axes);
    std::int64_t shard = 0;
    for (const Coordinate& at : all_coordinates({ranks[0] + 1, ranks[1] + 1, ranks[2] + 1})) {
      ASSERT_EQ(cut.position_of(shard++), at);
      ++shards;
    }
    ASSERT_EQ(cut.shard_count(), shard);
  }
  EXPECT_EQ(shards, 15 * 15 * 15);
}

// Whether some number of blocks divides all pieces as those listed do.
bool one_number_would_do(const Cut& cut, const std::vector<Piece>& pieces) {
  for (std::int64_t blocks = 1; blocks <= 14; ++blocks) {
    bool fits = true;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      const std::int64_t listed = cut.blocks_of(static_cast<std::int64_t>(piece));
      fits = fits && even_sizes(pieces[piece].size(), blocks)[0] ==
                         even_sizes(pieces[piece].size(), listed)[0];
    }
    if (fits) return true;
  }
  return false;
}

std::vector<Share> by_place(std::vector<Share> shares) {
  std::sort(shares.begin(), shares.end(),
            [](const Share& a, const Share& b) { return a.whole.begin < b.whole.begin; });
  return shares;
}

// No list where one entry would do, no sizes that are the even ones, no blocks that one rank holds
// anyway.
void expect_simplest(const DimCut& cut, const Case& one) {
  std::vector<Piece> pieces{whole_dim(one.size)};
  for (const CutAxis& axis : cut.axes()) {
    const auto& blocks = axis.cut.blocks();
    const auto& sizes = axis.cut.sizes();
    ASSERT_FALSE(blocks.size() > 1 && std::count(blocks.begin(), blocks.end(), blocks.front()) ==
                                          static_cast<std::ptrdiff_t>(blocks.size()))
        << describe(one);
    if (blocks.size() > 1 && sizes.empty()) {
      ASSERT_FALSE(one_number_would_do(axis.cut, pieces)) << describe(one);
    }
    ASSERT_FALSE(sizes.size() > 1 && std::count(sizes.begin(), sizes.end(), sizes.front()) ==
                                         static_cast<std::ptrdiff_t>(sizes.size()))
        << describe(one);
    bool sizes_are_even = !sizes.empty() && !has_turns(axis);
    for (std::size_t piece = 0; piece < pieces.size() && sizes_are_even; ++piece) {
      const auto index = static_cast<std::int64_t>(piece);
      sizes_are_even = *axis.cut.sizes_of(index) ==
                       even_sizes(pieces[piece].size() / axis.cut.blocks_of(index), axis.ranks);
    }
    ASSERT_FALSE(sizes_are_even) << describe(one);
    if (axis.ranks == 1) {
      ASSERT_TRUE(axis.cut.is_even()) << describe(one);
    }
    if (cut.axes().size() == 1 && blocks.empty() && has_turns(axis)) {
      std::int64_t runs = 0;  // as many turns as runs of ranks that come after each other
      std::int64_t last = axis.ranks;
      for (const Share& share : by_place(cut.owners({0, one.size}))) {
        if (runs == 0 || share.shard < last) ++runs;
        last = share.shard;
      }
      ASSERT_EQ(static_cast<std::int64_t>(sizes.front().size()), runs * axis.ranks)
          << describe(one);
    }
    pieces = cut_pieces(pieces, axis.ranks, axis.cut);
  }
}

TEST(DimCutLaw, TheSimplestFormMeansTheSameAndSimplifiesToItself) {
  int simplified = 0;
  const int cases = for_each_case([&](const Case& one) {
    const DimCut cut(one.size, one.axes);
    std::vector<Piece> pieces{whole_dim(one.size)};
    for (const CutAxis& axis : cut.axes()) pieces = cut_pieces(pieces, axis.ranks, axis.cut);
    for (std::size_t shard = 0; shard < pieces.size(); ++shard) {
      ASSERT_EQ(pieces[shard].elements, one.shards[shard].elements) << describe(one);
    }
    ASSERT_EQ(DimCut(one.size, cut.axes()), cut) << describe(one);
    expect_simplest(cut, one);
    simplified += cut.axes() != one.axes ? 1 : 0;
  });
  EXPECT_GT(cases, kFewestCases);
  EXPECT_GT(simplified, 5000);
}

TEST(DimCutLaw, RaggedCutsGiveEveryShardItsSize) {
  Random random(7);
  int cases = 0;
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::int64_t> ranks;
    std::int64_t shards = 1;
    for (std::int64_t axes = random.between(0, 3); axes > 0; --axes) {
      ranks.push_back(random.between(1, 4));
      shards *= ranks.back();
    }
    std::vector<std::int64_t> sizes;
    std::int64_t total = 0;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      sizes.push_back(random.one_in(3) ? 0 : random.between(0, 5));
      total += sizes.back();
    }
    const std::vector<Cut> cuts = ragged_cuts(ranks, sizes);
    ASSERT_EQ(cuts.size(), ranks.size());
    std::vector<CutAxis> axes;
    for (std::size_t axis = 0; axis < ranks.size(); ++axis)
      axes.push_back({axis, ranks[axis], cuts[axis]});
    const DimCut cut(total, axes);
    std::int64_t begin = 0;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      const Coordinate at = cut.position_of(shard);
      const std::int64_t size = sizes[static_cast<std::size_t>(shard)];
      ASSERT_EQ(cut.local_size(at), size);
      ASSERT_EQ(cut.intervals(at), (std::vector<Interval>{{begin, size}}));
      begin += size;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 5000);
}

TEST(DimCut, WithoutAxesIsOneShard) {
  const DimCut cut(5);
  EXPECT_FALSE(cut.is_cut());
  EXPECT_EQ(cut.shard_count(), 1);
  EXPECT_EQ(cut.local_size({}), 5);
  EXPECT_EQ(cut.intervals({}), (std::vector<Interval>{{0, 5}}));
  EXPECT_EQ(cut.owners({1, 2}), (std::vector<Share>{{0, {1, 2}, 1}}));
  EXPECT_EQ(cut.most_intervals(), 1);
  EXPECT_EQ(DimCut(0).intervals({}), (std::vector<Interval>{{0, 0}}));
  EXPECT_TRUE(DimCut(0).owners({0, 1}).empty());
}

TEST(DimCut, AnEmptyShardStandsWhereItWouldBegin) {
  const DimCut even(1, {{0, 4, Cut()}});
  EXPECT_EQ(even.intervals({0}), (std::vector<Interval>{{0, 1}}));
  for (std::int64_t rank = 1; rank < 4; ++rank) {
    EXPECT_EQ(even.intervals({rank}), (std::vector<Interval>{{1, 0}}));
  }
  const DimCut ragged(5, {{0, 3, Cut::ragged({2, 0, 3})}});
  EXPECT_EQ(ragged.intervals({1}), (std::vector<Interval>{{2, 0}}));
  const DimCut nested(5, {{0, 2, Cut()}, {1, 4, Cut()}});  // 0:3 and 3:5, each cut in four
  EXPECT_EQ(nested.intervals({0, 3}), (std::vector<Interval>{{3, 0}}));
  EXPECT_EQ(nested.intervals({1, 2}), (std::vector<Interval>{{5, 0}}));
  EXPECT_EQ(DimCut(0, {{0, 2, Cut()}}).intervals({1}), (std::vector<Interval>{{0, 0}}));
}

TEST(DimCut, IntervalsAreWrittenAsSlices) {
  EXPECT_EQ(to_string(Interval{2, 3}), "2:5");
  EXPECT_EQ(to_string(std::vector<Interval>{{0, 3}, {8, 3}}), "0:3, 8:11");
}

TEST(DimCut, EvenSizesBecomeAnEvenCutAndEqualEntriesOne) {
  EXPECT_EQ(DimCut(5, {{0, 2, Cut::ragged({3, 2})}}), DimCut(5, {{0, 2, Cut()}}));
  EXPECT_EQ(DimCut(8, {{0, 2, Cut()}, {1, 2, Cut({2, 2}, {})}}),
            DimCut(8, {{0, 2, Cut()}, {1, 2, Cut::in_blocks(2)}}));
  EXPECT_EQ(
      DimCut(8, {{0, 2, Cut()}, {1, 2, Cut::ragged_per_piece({{3, 1}, {3, 1}})}}).axes()[1].cut,
      Cut::ragged({3, 1}));
  EXPECT_EQ(DimCut(6, {{0, 1, Cut::in_blocks(3)}}), DimCut(6, {{0, 1, Cut()}}));
  EXPECT_EQ(DimCut(6, {{0, 2, Cut::in_blocks(5)}}), DimCut(6, {{0, 2, Cut::in_blocks(3)}}));
  // 7 elements leave pieces of 3, 3 and 1; four blocks give all of them runs of 1
  EXPECT_EQ(DimCut(7, {{0, 3, Cut()}, {1, 2, Cut::in_blocks(4)}}).axes()[1].cut, Cut::in_blocks(3));
  EXPECT_EQ(DimCut(7, {{0, 3, Cut()}, {1, 2, Cut({3, 3, 1}, {})}}).axes()[1].cut,
            Cut::in_blocks(3));
}

TEST(DimCut, SizesThatDoNotAddUpAreRefused) {
  EXPECT_EQ(
      usage_error_of([] { DimCut(9, {{0, 3, Cut::ragged({3, 1, 4})}}); }),
      "tegula: the given shard sizes add up to 8 where 9 elements are cut\n"
      "  cut     axis 0 with 3 ranks, sizes=[3, 1, 4]\n"
      "  hint    the sizes of all ranks, times the blocks, must add up to the size of the piece");
  EXPECT_EQ(
      usage_error_of([] { DimCut(9, {{1, 2, Cut({2}, {{3, 1}})}}); }),
      "tegula: the given shard sizes add up to 8 where 9 elements are cut\n"
      "  cut     axis 1 with 2 ranks, blocks=2, sizes=[3, 1]\n"
      "  hint    the sizes of all ranks, times the blocks, must add up to the size of the piece");
  EXPECT_EQ(
      usage_error_of([] { DimCut(9, {{0, 2, Cut::ragged({kMost, kMost})}}); }),
      "tegula: the given shard sizes add up to too much where 9 elements are cut\n"
      "  cut     axis 0 with 2 ranks, sizes=[9223372036854775807, 9223372036854775807]\n"
      "  hint    the sizes of all ranks, times the blocks, must add up to the size of the piece");
  EXPECT_THROW(DimCut(9, {{0, 2, Cut({kMost}, {{3, 1}})}}), UsageError);
  // the second piece has 4 elements
  EXPECT_THROW(DimCut(9, {{0, 2, Cut()}, {1, 2, Cut::ragged({3, 2})}}), UsageError);
}

TEST(DimCut, ARaggedCutNeedsOneSizePerRank) {
  EXPECT_EQ(usage_error_of([] { DimCut(8, {{2, 2, Cut::ragged({3, 1, 4})}}); }),
            "tegula: a ragged cut lists 3 sizes for an axis of 2 ranks\n"
            "  cut     axis 2 with 2 ranks, sizes=[3, 1, 4]\n"
            "  hint    give one size per rank along the axis, or several, by turns");
}

TEST(DimCut, RanksTakeTurnsWhereMoreSizesAreGiven) {
  // four, two and two heads side by side, whole pairs of heads on each of two ranks
  const DimCut cut(8, {{0, 2, Cut::ragged({2, 2, 1, 1, 1, 1})}});
  EXPECT_EQ(cut.intervals({0}), (std::vector<Interval>{{0, 2}, {4, 1}, {6, 1}}));
  EXPECT_EQ(cut.intervals({1}), (std::vector<Interval>{{2, 2}, {5, 1}, {7, 1}}));
  EXPECT_EQ(cut.most_intervals(), 3);
  EXPECT_EQ(cut.owners({4, 3}),
            (std::vector<Share>{{0, {4, 1}, 2}, {0, {6, 1}, 3}, {1, {5, 1}, 2}}));
}

TEST(DimCut, TurnsAreAsFewAsTheyCanBe) {
  const auto simplest = [](std::int64_t size, std::int64_t ranks, std::vector<std::int64_t> sizes) {
    return to_string(DimCut(size, {{0, ranks, Cut::ragged(std::move(sizes))}}).axes()[0].cut);
  };
  EXPECT_EQ(simplest(12, 2, {2, 2, 2, 2, 2, 2}), ", blocks=3");
  EXPECT_EQ(simplest(10, 2, {2, 2, 2, 2, 1, 1}), ", blocks=3");
  EXPECT_EQ(simplest(8, 2, {3, 1, 3, 1}), ", blocks=2, sizes=[3, 1]");
  EXPECT_EQ(simplest(6, 2, {3, 0, 0, 3}), "");
  EXPECT_EQ(simplest(6, 2, {3, 0, 1, 2}), ", sizes=[4, 2]");
  EXPECT_EQ(simplest(6, 2, {1, 2, 0, 0, 2, 1}), ", sizes=[1, 2, 2, 1]");
  EXPECT_EQ(simplest(6, 1, {3, 1, 2}), "");
  EXPECT_EQ(simplest(0, 2, {0, 0, 0, 0}), "");
}

TEST(DimCut, AListNeedsOneEntryPerPiece) {
  EXPECT_EQ(usage_error_of([] { DimCut(8, {{0, 3, Cut()}, {1, 2, Cut({2, 1}, {})}}); }),
            "tegula: a cut lists blocks for 2 pieces but the axes before it leave 3\n"
            "  cut     axis 1 with 2 ranks, blocks=[2, 1]\n"
            "  hint    give one entry for all pieces, or one for each");
  EXPECT_EQ(usage_error_of([] { DimCut(8, {{0, 2, Cut::ragged_per_piece({{3, 1}, {2, 2}})}}); }),
            "tegula: a cut lists sizes for 2 pieces but the axes before it leave 1\n"
            "  cut     axis 0 with 2 ranks, sizes=[[3, 1], [2, 2]]\n"
            "  hint    give one entry for all pieces, or one for each");
}

TEST(DimCut, HasNoNegativeSizeAndNoAxisWithoutRanks) {
  EXPECT_EQ(usage_error_of([] { DimCut(-1, {}); }),
            "tegula: a dim cannot have -1 elements\n"
            "  hint    sizes are 0 or more");
  EXPECT_EQ(usage_error_of([] { DimCut(4, {{0, 0, Cut()}}); }),
            "tegula: a dim cannot be cut over an axis of 0 ranks\n"
            "  cut     axis 0 with 0 ranks\n"
            "  hint    an axis has at least one rank");
  EXPECT_THROW(DimCut(4, {{0, kLeast, Cut::in_blocks(2)}}), UsageError);
  EXPECT_EQ(usage_error_of([] { DimCut(4, {{0, kMost, Cut()}, {1, 2, Cut()}}); }),
            "tegula: a dim cannot be cut into more shards than 63 bits count\n"
            "  cut     axis 1 with 2 ranks\n"
            "  hint    check the sizes of the mesh");
  EXPECT_THROW(DimCut{kLeast}, UsageError);
}

TEST(DimCut, TheGreatestSizesDoNotOverflow) {
  const DimCut even(kMost, {{0, 3, Cut()}, {1, 7, Cut()}});
  std::int64_t total = 0;
  for (const Coordinate& at : all_coordinates({3, 7})) {
    ASSERT_EQ(even.intervals(at), (std::vector<Interval>{{total, even.local_size(at)}}));
    total += even.local_size(at);
  }
  EXPECT_EQ(total, kMost);

  const DimCut blocks(kMost, {{0, 2, Cut::in_blocks(2)}});
  constexpr std::int64_t kQuarter = std::int64_t{1} << 61;
  EXPECT_EQ(blocks.intervals({0}),
            (std::vector<Interval>{{0, kQuarter}, {2 * kQuarter, kQuarter}}));
  EXPECT_EQ(blocks.intervals({1}),
            (std::vector<Interval>{{kQuarter, kQuarter}, {3 * kQuarter, kQuarter - 1}}));
  EXPECT_EQ(blocks.local_size({0}) + blocks.local_size({1}), kMost);

  const DimCut ragged(kMost, {{0, 3, Cut::ragged({0, kMost, 0})}});
  EXPECT_EQ(ragged.intervals({1}), (std::vector<Interval>{{0, kMost}}));
  const DimCut all_blocks(kMost, {{0, 2, Cut::in_blocks(kMost)}, {1, 2, Cut::in_blocks(kMost)}});
  EXPECT_EQ(all_blocks.local_size({0, 0}), kMost);
  EXPECT_EQ(all_blocks.most_intervals(), kMost);
}

TEST(DimCut, AnIntervalMayReachBeyondTheDim) {
  const DimCut cut(5, {{0, 2, Cut()}});
  const std::vector<Share> all = {{0, {0, 3}, 0}, {1, {3, 2}, 0}};
  EXPECT_EQ(cut.owners({0, kMost}), all);
  EXPECT_EQ(cut.owners({-1, kMost}), all);
  EXPECT_EQ(cut.owners({kLeast, kMost}), std::vector<Share>{});  // it ends before 0
  EXPECT_EQ(cut.owners({4, kMost}), (std::vector<Share>{{1, {4, 1}, 1}}));
  EXPECT_EQ(cut.owners({kMost, kMost}), std::vector<Share>{});
  EXPECT_EQ(cut.owners({3, -1}), std::vector<Share>{});
  EXPECT_EQ(cut.owners({kLeast, kLeast}), std::vector<Share>{});
}

TEST(RaggedCuts, NeedOneSizePerShard) {
  const std::vector<std::int64_t> ranks = {2, 2};
  EXPECT_EQ(usage_error_of([&] { ragged_cuts(ranks, std::vector<std::int64_t>{1, 2, 3}); }),
            "tegula: need one size for each of 4 shards, got 3\n"
            "  hint    list the sizes by the coordinates of the axes, the first axis slowest");
  EXPECT_THROW(ragged_cuts(ranks, {}), UsageError);
}

TEST(RaggedCuts, RefuseWhatIsNoSizeOrNoAxis) {
  using Numbers = std::vector<std::int64_t>;
  EXPECT_THROW(ragged_cuts(Numbers{2}, Numbers{3, -1}), UsageError);
  EXPECT_EQ(usage_error_of([] { ragged_cuts(Numbers{2}, Numbers{kMost, kMost}); }),
            "tegula: the given shard sizes add up to more than 63 bits count\n"
            "  sizes   [9223372036854775807, 9223372036854775807]\n"
            "  hint    check the sizes");
  EXPECT_THROW(ragged_cuts(Numbers{2}, Numbers{kLeast, kLeast}), UsageError);
  EXPECT_THROW(ragged_cuts(Numbers{0}, {}), UsageError);
  EXPECT_THROW(ragged_cuts(Numbers{-1, -1}, Numbers{5}), UsageError);
  EXPECT_THROW(ragged_cuts(Numbers{kMost, kMost}, Numbers{5}), UsageError);
}

}  // namespace dim_cut_test
}  // namespace tegula
