#include "tegula/propagate/move_cost.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

const AxisLink kLink{4, LinkCost{}, 8};
constexpr std::int64_t kBytes = 1 << 20;

std::int64_t sent(const Placement& from, const Placement& to) {
  return move_cost(from, to, kBytes, kLink, Owing::No).value().sent;
}

TEST(MoveCost, StayingAndSlicingSendNothing) {
  EXPECT_EQ(sent(Replicate(), Replicate()), 0);
  EXPECT_EQ(sent(Shard(1), Shard(1)), 0);
  EXPECT_EQ(sent(Replicate(), Shard(0)), 0);
  EXPECT_GT(move_cost(Replicate(), Shard(0), kBytes, kLink, Owing::No)->copied, 0);
}

TEST(MoveCost, CollectivesAreOrderedByTheBytesTheySend) {
  // of a tile: an all-to-all and a reduce-scatter send 3/4, an all-reduce twice that, a gather 3
  EXPECT_EQ(sent(Shard(0), Shard(1)), sent(Partial(), Shard(0)));
  EXPECT_LT(sent(Partial(), Shard(0)), sent(Partial(), Replicate()));
  EXPECT_LT(sent(Partial(), Replicate()), sent(Shard(0), Replicate()));
}

TEST(MoveCost, DebtsAreNotMadeUnasked) {
  EXPECT_FALSE(move_cost(Replicate(), Partial(), kBytes, kLink, Owing::No));
  EXPECT_FALSE(move_cost(Shard(0), Partial(), kBytes, kLink, Owing::Allowed));
  EXPECT_FALSE(move_cost(Partial(ReduceOp::Max), Partial(), kBytes, kLink, Owing::Allowed));
  EXPECT_EQ(move_cost(Replicate(), Partial(), kBytes, kLink, Owing::Allowed)->sent, 0);
}

TEST(MoveCost, AMaskedSumIsASum) {
  EXPECT_EQ(move_cost(MaskPartial(9), Partial(), kBytes, kLink, Owing::No)->sent, 0);
}

TEST(MoveCost, PayingADebtTakesAnAllReduce) {
  EXPECT_EQ(debt_cost(Partial(), kBytes, kLink), sent(Partial(), Replicate()));
  EXPECT_EQ(debt_cost(Shard(0), kBytes, kLink), 0);
}

}  // namespace
}  // namespace tegula
