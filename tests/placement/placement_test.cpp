#include "tegula/placement/placement.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <sstream>
#include <unordered_map>

#include "tests/placement/random.h"
#include "tests/placement/usage_error.h"

namespace tegula {
namespace placement_test {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Cut generated_cut(Random& random) {
  std::vector<std::int64_t> blocks;
  std::vector<std::vector<std::int64_t>> sizes;
  const std::int64_t ranks = random.between(1, 4);
  const std::int64_t rows = random.between(0, 3);
  for (std::int64_t i = random.between(0, 3); i > 0; --i) blocks.push_back(random.between(1, 4));
  for (std::int64_t i = 0; i < rows; ++i) {
    sizes.push_back(random_sizes(random, random.between(0, 9), ranks));
  }
  return {blocks, sizes};
}

Placement generated_placement(Random& random) {
  static const std::vector<std::int64_t> kDims = {0, 1, 2, 3, -1, -2, kLeast, kMost};
  static const std::vector<std::int64_t> kExtents = {0, 1, 1000, kMost};
  switch (random.between(0, 9)) {
    case 0:
      return Replicate();
    case 1:
      return Partial(kReduceOps[static_cast<std::size_t>(random.between(0, 7))]);
    case 2:
      return MaskPartial(random.pick(kExtents));
    case 3:
      return Shard(random.pick(kDims));
    default:
      return Shard(random.pick(kDims), generated_cut(random));
  }
}

TEST(PlacementLaw, WhatIsPrintedReadsBackEqual) {
  Random random(1);
  std::set<std::string> texts;
  for (int i = 0; i < 5000; ++i) {
    const Placement placement = generated_placement(random);
    const std::string text = to_string(placement);
    ASSERT_EQ(parse_placement(text), placement) << text;
    ASSERT_EQ(to_string(parse_placement(text)), text);
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 2000U);
}

TEST(PlacementLaw, ListsReadBackEqualWithAndWithoutBrackets) {
  Random random(2);
  int checked = 0;
  for (int i = 0; i < 1000; ++i) {
    Placements placements;
    for (std::int64_t n = random.between(0, 4); n > 0; --n) {
      placements.push_back(generated_placement(random));
    }
    const std::string text = to_string(placements);
    ASSERT_EQ(parse_placements(text), placements) << text;
    ASSERT_EQ(parse_placements(text.substr(1, text.size() - 2)), placements) << text;
    ++checked;
  }
  EXPECT_EQ(checked, 1000);
}

TEST(PlacementLaw, TwoPlacementsAreEqualIfAndOnlyIfTheyPrintAlikeAndThenTheirHashesAgree) {
  Random random(3);
  std::vector<Placement> placements;
  for (int i = 0; i < 400; ++i) placements.push_back(generated_placement(random));
  int equal = 0;
  int different_hashes = 0;
  int different = 0;
  for (const Placement& a : placements) {
    for (const Placement& b : placements) {
      ASSERT_EQ(a == b, to_string(a) == to_string(b)) << a << " and " << b;
      if (a == b) {
        ASSERT_EQ(hash_of(a), hash_of(b)) << a;
        ++equal;
      } else {
        different_hashes += hash_of(a) != hash_of(b) ? 1 : 0;
        ++different;
      }
    }
  }
  EXPECT_GT(equal, 2000);
  EXPECT_GT(different, 100'000);
  EXPECT_EQ(different_hashes, different);
}

TEST(PlacementLaw, ADamagedTextIsAPlacementOrAUsageError) {
  Random random(4);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = damaged(random, to_string(generated_placement(random)));
    try {
      const Placement placement = parse_placement(text);
      ASSERT_EQ(parse_placement(to_string(placement)), placement) << text;
      ++read;
    } catch (const UsageError&) {
      ++refused;
    }
    try {
      parse_placements(text);
    } catch (const UsageError&) {
    }
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 5000);
}

TEST(Placement, IsWrittenShort) {
  EXPECT_EQ(to_string(Placements{Replicate(), Shard(0), Shard(-1), Partial(), MaskPartial(1000)}),
            "[R, S(0), S(-1), P(sum), M(1000)]");
  EXPECT_EQ(to_string(Placement(Shard(0, Cut::ragged({3, 1, 4})))), "S(0, sizes=[3, 1, 4])");
  EXPECT_EQ(to_string(Placement(Shard(2, Cut::in_blocks(2)))), "S(2, blocks=2)");
  EXPECT_EQ(to_string(Placement(Shard(0, Cut({2, 1}, {{4, 2}, {2, 2}})))),
            "S(0, blocks=[2, 1], sizes=[[4, 2], [2, 2]])");
  std::ostringstream out;
  out << Placement(Shard(1));
  EXPECT_EQ(out.str(), "S(1)");
}

TEST(Placement, ReadsWithAnyBlanksAndTakesAPlainPForASum) {
  EXPECT_EQ(parse_placement("  S ( -1 , sizes = [ 3,1 ] ) "),
            Placement(Shard(-1, Cut::ragged({3, 1}))));
  EXPECT_EQ(parse_placement("P"), Placement(Partial(ReduceOp::Sum)));
  EXPECT_EQ(parse_placements("R,P , S(0)"), (Placements{Replicate(), Partial(), Shard(0)}));
  EXPECT_TRUE(parse_placements("").empty());
  EXPECT_TRUE(parse_placements("[]").empty());
}

TEST(Placement, OneBlockIsAPlainCut) {
  EXPECT_TRUE(Cut::in_blocks(1).is_even());
  EXPECT_EQ(Placement(Shard(0, Cut::in_blocks(1))), Placement(Shard(0)));
  EXPECT_EQ(hash_of(Shard(0, Cut::in_blocks(1))), hash_of(Shard(0)));
  EXPECT_EQ(parse_placement("S(0, blocks=1)"), Placement(Shard(0)));
}

TEST(Placement, KindsNeverEqualEachOther) {
  EXPECT_NE(Placement(Replicate()), Placement(Shard(0)));
  EXPECT_NE(Placement(Partial()), Placement(MaskPartial(0)));
  EXPECT_NE(Placement(Partial()), Placement(Partial(ReduceOp::Avg)));
  EXPECT_NE(Placement(Shard(0)), Placement(Shard(0, Cut::ragged({1}))));
  EXPECT_NE(hash_of(Partial()), hash_of(MaskPartial(0)));
}

TEST(Placement, OwesAReductionIfPartial) {
  EXPECT_EQ(owed_reduction(Replicate()), std::nullopt);
  EXPECT_EQ(owed_reduction(Shard(0)), std::nullopt);
  EXPECT_EQ(owed_reduction(MaskPartial(7)), ReduceOp::Sum);
  for (ReduceOp op : kReduceOps) EXPECT_EQ(owed_reduction(Partial(op)), op);
}

TEST(Placement, TellsItsKind) {
  EXPECT_TRUE(is_replicate(Replicate()));
  EXPECT_FALSE(is_replicate(Partial()));
  const Placement placement = Shard(3);
  ASSERT_NE(as_shard(placement), nullptr);
  EXPECT_EQ(as_shard(placement)->dim(), 3);
  EXPECT_EQ(as_shard(Placement(Replicate())), nullptr);
}

TEST(Cut, GivesEachPieceItsEntryOrTheOneForAll) {
  const Cut one({2}, {{3, 1}});
  EXPECT_EQ(one.blocks_of(5), 2);
  EXPECT_EQ(*one.sizes_of(5), (std::vector<std::int64_t>{3, 1}));
  const Cut each({2, 1}, {{4, 2}, {2, 2}});
  EXPECT_EQ(each.blocks_of(1), 1);
  EXPECT_EQ(*each.sizes_of(1), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(Cut().blocks_of(9), 1);
  EXPECT_EQ(Cut().sizes_of(9), nullptr);
  EXPECT_EQ(Cut::ragged_per_piece({{1, 2}, {3, 0}}), Cut({}, {{1, 2}, {3, 0}}));
}

TEST(Cut, NeedsAtLeastOneBlock) {
  EXPECT_EQ(usage_error_of([] { Cut({2, 0}, {}); }),
            "tegula: a cut needs at least one block per piece, not 0\n"
            "  blocks  [2, 0]\n"
            "  hint    leave blocks out for a plain cut");
  EXPECT_THROW(Cut::in_blocks(kLeast), UsageError);
}

TEST(Cut, NeedsRowsOfOneLength) {
  EXPECT_EQ(usage_error_of([] { Cut::ragged_per_piece({{3, 1}, {4}}); }),
            "tegula: every piece needs the same number of shard sizes, at least one\n"
            "  sizes   [3, 1] against [4]\n"
            "  hint    sizes=[3, 1, 4] has one size per rank; blocks=2 cuts two runs alike");
  EXPECT_THROW(Cut::ragged({}), UsageError);
  EXPECT_THROW(parse_placement("S(0, sizes=[])"), UsageError);
  EXPECT_THROW(parse_placement("S(0, sizes=[[], []])"), UsageError);
}

TEST(Cut, HasNoNegativeSizes) {
  EXPECT_EQ(usage_error_of([] { Cut::ragged({3, -1}); }),
            "tegula: a shard cannot have -1 elements\n"
            "  sizes   [3, -1]\n"
            "  hint    sizes are 0 or more");
}

TEST(MaskPartial, HasNoNegativeExtent) {
  EXPECT_EQ(usage_error_of([] { MaskPartial(-5); }),
            "tegula: cannot look up in a dim of -5 entries\n"
            "  hint    MaskPartial takes the whole size of the dim that is cut");
}

TEST(ReduceOp, NamesReadBack) {
  for (ReduceOp op : kReduceOps) EXPECT_EQ(parse_reduce_op(name_of(op)), op);
  EXPECT_EQ(usage_error_of([] { parse_reduce_op("median"); }),
            "tegula: unknown reduction \"median\"\n"
            "  hint    use one of sum, avg, min, max, product, band, bor, bxor");
}

TEST(ReduceOp, EqualOnesAndSumWithAvgCommute) {
  int commuting = 0;
  for (ReduceOp a : kReduceOps) {
    for (ReduceOp b : kReduceOps) {
      EXPECT_EQ(commute(a, b), commute(b, a));
      commuting += commute(a, b) ? 1 : 0;
    }
    EXPECT_TRUE(commute(a, a));
  }
  EXPECT_TRUE(commute(ReduceOp::Sum, ReduceOp::Avg));
  EXPECT_FALSE(commute(ReduceOp::Sum, ReduceOp::Max));
  EXPECT_EQ(commuting, 10);
}

TEST(PlacementText, AMisfitSaysWhatWasExpectedAndHowOneIsWritten) {
  EXPECT_EQ(
      usage_error_of([] { parse_placement("X"); }),
      "tegula: cannot read a placement: expected R, S(...), P(...) or M(...) where \"X\" stands\n"
      "  text    X\n"
      "  place   character 1\n"
      "  hint    write a placement like R, S(0), S(0, sizes=[3, 1, 4]), S(0, blocks=2), P(sum) or "
      "M(1000)");
  EXPECT_EQ(
      usage_error_of([] { parse_placement("S(0, cuts=2)"); }),
      "tegula: cannot read a placement: expected blocks= or sizes= where \"cuts=2)\" stands\n"
      "  text    S(0, cuts=2)\n"
      "  place   character 6\n"
      "  hint    write a placement like R, S(0), S(0, sizes=[3, 1, 4]), S(0, blocks=2), P(sum) or "
      "M(1000)");
  EXPECT_EQ(usage_error_of([] { parse_placements("[R, S(0)"); }),
            "tegula: cannot read placements: expected \"]\" where the text ends\n"
            "  text    [R, S(0)\n"
            "  place   character 9\n"
            "  hint    write placements like [R, S(0)]");
  EXPECT_EQ(usage_error_of([] { parse_placement("P(median)"); }),
            "tegula: unknown reduction \"median\"\n"
            "  hint    use one of sum, avg, min, max, product, band, bor, bxor");
}

TEST(PlacementText, WhatIsNoPlacementIsAUsageError) {
  const std::vector<std::string> texts = {"",
                                          " ",
                                          "R R",
                                          "Replicate",
                                          "S",
                                          "S()",
                                          "S(0",
                                          "S(0))",
                                          "S(0,)",
                                          "S(a)",
                                          "S(1.5)",
                                          "P()",
                                          "P(sum",
                                          "P(sum, avg)",
                                          "M",
                                          "M()",
                                          "M(-1)",
                                          "S(0, blocks=)",
                                          "S(0, blocks=0)",
                                          "S(0, blocks=[])",
                                          "S(0, blocks=[2, 0])",
                                          "S(0, sizes=3)",
                                          "S(0, sizes=[3, -1])",
                                          "S(0, sizes=[[1], 2])",
                                          "S(0, sizes=[[1], [1, 2]])",
                                          "S(0, sizes=[[[1]]])",
                                          "S(0, sizes=[1], blocks=2)",
                                          "S(0, blocks=2, blocks=2)",
                                          "S(0, sizes=[1], sizes=[1])",
                                          "S(9223372036854775808)",
                                          "M(99999999999999999999)",
                                          "_S(0, 2)",
                                          "S(0)[1]",
                                          std::string(1, '\0'),
                                          "S(0, sizes=" + std::string(100'000, '['),
                                          std::string(100'000, '('),
                                          std::string(1'000'000, 'S')};
  for (const std::string& text : texts) {
    EXPECT_THROW(parse_placement(text), UsageError) << text.substr(0, 80);
  }
  EXPECT_THROW(parse_placements("[R"), UsageError);
  EXPECT_THROW(parse_placements("[R,]"), UsageError);
  EXPECT_THROW(parse_placements("R]"), UsageError);
  EXPECT_THROW(parse_placements("[[R]]"), UsageError);
}

TEST(PlacementText, TheGreatestNumbersAreRead) {
  EXPECT_EQ(parse_placement("S(-9223372036854775808)"), Placement(Shard(kLeast)));
  EXPECT_EQ(parse_placement("M(9223372036854775807)"), Placement(MaskPartial(kMost)));
  EXPECT_EQ(parse_placement("S(0, blocks=9223372036854775807)"),
            Placement(Shard(0, Cut::in_blocks(kMost))));
}

}  // namespace placement_test
}  // namespace tegula
