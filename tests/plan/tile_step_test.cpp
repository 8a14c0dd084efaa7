#include "tegula/plan/tile_step.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace tile_step_test {

TileStep step(const std::string& tensor, const std::string& from, const std::string& to,
              const Coordinate& at) {
  return step_at(parse_spec(tensor + " as " + from), parse_spec(tensor + " as " + to), at);
}

TEST(TileStep, GatheringEvenShardsNeedsNoReordering) {
  EXPECT_EQ(step("f32[5, 2] on (a=2)", "[S(0)]", "[R]", {1}),
            (TileStep{{0}, {}, move::AllGather{0, {3, 2}}, {}}));
}

TEST(TileStep, GatheringBlocksPutsThemBackInOrder) {
  EXPECT_EQ(
      step("f32[8] on (a=2)", "[S(0, blocks=2)]", "[R]", {0}),
      (TileStep{{0}, {}, move::AllGather{0, {4, 4}}, Pick{0, {{0, 2}, {4, 2}, {2, 2}, {6, 2}}}}));
}

TEST(TileStep, MorePiecesThanCanBeListedAreRefused) {
  const std::string tensor = "f32[1000000000000] on (a=2)";
  const std::string blocks = "[S(0, blocks=100000000000)]";
  EXPECT_THROW(step(tensor, "[R]", blocks, {0}), UsageError);
  EXPECT_THROW(step(tensor, blocks, "[S(0)]", {0}), UsageError);
  try {
    step(tensor, blocks, "[R]", {0});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: a step would take a tile apart into more pieces than can be listed\n"
                 "  from    f32[1000000000000] on (a=2) as [S(0, blocks=100000000000)]\n"
                 "  to      f32[1000000000000] on (a=2) as [R]\n"
                 "  most    4194304 pieces of the ranks of a group together\n"
                 "  hint    cut dim 0 into fewer blocks");
  }
}

TEST(TileStep, AReplicaIsSlicedWithoutAnybodysHelp) {
  EXPECT_EQ(step("f32[5] on (a=2)", "[R]", "[S(0)]", {1}),
            (TileStep{{0}, Pick{0, {{3, 2}}}, move::Stay{}, {}}));
  EXPECT_EQ(step("f32[1] on (a=2)", "[R]", "[S(0)]", {1}),
            (TileStep{{0}, Pick{0, {}}, move::Stay{}, {}}));
}

TEST(TileStep, ShardsOfOneDimTurnIntoShardsOfAnother) {
  EXPECT_EQ(step("f32[5, 3] on (a=2)", "[S(0)]", "[S(1)]", {0}),
            (TileStep{{0}, {}, move::AllToAll{1, 0, {2, 1}, {3, 2}}, {}}));
}

TEST(TileStep, RecuttingSendsOnlyWhatChangesHands) {
  EXPECT_EQ(step("f32[6] on (a=3)", "[S(0)]", "[S(0, sizes=[1, 4, 1])]", {1}),
            (TileStep{{0}, {}, move::AllToAll{0, 0, {0, 2, 0}, {1, 2, 1}}, {}}));
}

TEST(TileStep, APartialIsReducedIntoItsShards) {
  EXPECT_EQ(step("f32[5] on (a=2)", "[P(max)]", "[S(0)]", {1}),
            (TileStep{{0}, {}, move::ReduceScatter{0, ReduceOp::Max, {3, 2}}, {}}));
  EXPECT_EQ(step("f32[5] on (a=2)", "[M(9)]", "[R]", {1}),
            (TileStep{{0}, {}, move::AllReduce{ReduceOp::Sum}, {}}));
}

TEST(TileStep, AValueBecomesPartsThatReduceToIt) {
  const auto move = [](const std::string& to, std::int64_t rank) {
    return step("i64[5] on (a=2)", "[R]", to, {rank}).move;
  };
  for (const char* one_holds : {"[P(sum)]", "[M(9)]", "[P(bxor)]", "[P(product)]"}) {
    EXPECT_EQ(move(one_holds, 0), TileMove(move::Stay{}));
  }
  for (const char* zero : {"[P(sum)]", "[M(9)]", "[P(bxor)]"}) {
    EXPECT_EQ(move(zero, 1), TileMove(move::Fill{0}));
  }
  EXPECT_EQ(move("[P(product)]", 1), TileMove(move::Fill{1}));
  for (const char* all_hold : {"[P(avg)]", "[P(min)]", "[P(max)]", "[P(band)]", "[P(bor)]"}) {
    EXPECT_EQ(move(all_hold, 1), TileMove(move::Stay{}));
  }
}

TEST(TileStep, AShardAmongZerosIsPartOfASum) {
  EXPECT_EQ(step("f32[5] on (a=2)", "[S(0)]", "[P(sum)]", {1}),
            (TileStep{{0}, {}, move::Pad{0, 5, {{3, 2}}}, {}}));
}

TEST(TileStep, AnAxisOfOneRankNeverCommunicates) {
  for (const char* from : {"[R]", "[S(0)]", "[P(sum)]", "[P(max)]"}) {
    for (const char* to : {"[R]", "[S(0)]", "[S(1)]", "[P(sum)]"}) {
      if (std::string(from) == to) continue;
      EXPECT_EQ(step("f32[5, 3] on (a=1)", from, to, {0}), (TileStep{{}, {}, move::Stay{}, {}}));
    }
  }
}

TEST(TileStep, WhatIsNoSingleStepIsRefused) {
  const std::string tensor = "f32[8, 8] on (a=2, b=2)";
  const auto refused = [&](const char* from, const char* to) {
    EXPECT_THROW(step(tensor, from, to, {0, 0}), UsageError) << from << to;
  };
  refused("[R, R]", "[R, R]");
  refused("[S(0), R]", "[R, S(0)]");
  refused("[S(0), S(0)]", "[R, S(0)]");
  refused("[R, S(0)]", "[S(0), S(0)]");
  refused("[P(sum), R]", "[P(max), R]");
  refused("[S(0), R]", "[P(max), R]");
  refused("[M(9), P(sum)]", "[P(sum), M(9)]");
  refused("[S(0), S(1)]", "[R, R]");
  try {
    step(tensor, "[S(0), S(0)]", "[S(1), S(0)]", {0, 0});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: one step does not lead there: \"a\" and \"b\" do not change alike\n"
                 "  from    f32[8, 8] on (a=2, b=2) as [S(0), S(0)]\n"
                 "  to      f32[8, 8] on (a=2, b=2) as [S(1), S(0)]\n"
                 "  hint    RedistributePlanner().plan(from, to) lists the steps that do");
  }
}

TEST(TileStep, AxesThatChangeAlikeAreOneGroup) {
  const std::string tensor = "f32[8, 4] on (a=2, b=2)";
  EXPECT_EQ(step(tensor, "[P(sum), P(sum)]", "[R, R]", {0, 1}),
            (TileStep{{0, 1}, {}, move::AllReduce{ReduceOp::Sum}, {}}));
  EXPECT_EQ(step(tensor, "[S(0), S(0)]", "[R, R]", {0, 1}),
            (TileStep{{0, 1}, {}, move::AllGather{0, {2, 2, 2, 2}}, {}}));
  EXPECT_EQ(step(tensor, "[P(sum), P(sum)]", "[S(0), S(0)]", {0, 1}),
            (TileStep{{0, 1}, {}, move::ReduceScatter{0, ReduceOp::Sum, {2, 2, 2, 2}}, {}}));
  EXPECT_EQ(step(tensor, "[S(0), S(0)]", "[S(1), S(1)]", {0, 1}),
            (TileStep{{0, 1}, {}, move::AllToAll{1, 0, {1, 1, 1, 1}, {2, 2, 2, 2}}, {}}));
}

TEST(TileStep, AGroupCountsItsRanksInTheOrderInWhichTheyCut) {
  EXPECT_EQ(step("f32[8] on (a=2, b=2)", "[S(0)[1], S(0)[0]]", "[R, R]", {0, 1}),
            (TileStep{{1, 0}, {}, move::AllGather{0, {2, 2, 2, 2}}, {}}));
}

TEST(TileStep, AnotherOrderSendsTilesToTheirNewPlaces) {
  EXPECT_EQ(step("f32[8] on (a=2, b=2)", "[S(0), S(0)]", "[S(0)[1], S(0)[0]]", {0, 1}),
            (TileStep{{0, 1}, {}, move::AllToAll{0, 0, {0, 0, 2, 0}, {0, 0, 2, 0}}, {}}));
}

TEST(TileStep, AnAxisOfOneRankMayChangeAlongWithAnother) {
  EXPECT_EQ(step("f32[4] on (a=2, one=1)", "[S(0), S(0)]", "[R, P(max)]", {0, 0}),
            (TileStep{{0}, {}, move::AllGather{0, {2, 2}}, {}}));
}

}  // namespace tile_step_test
}  // namespace tegula::inner
