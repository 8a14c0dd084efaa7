#include "tegula/propagate/transition_cost.h"

#include <gtest/gtest.h>

#include <limits>

#include "tegula/plan/plan.h"

namespace tegula::inner {
namespace transition_cost_test {

const DeviceMesh kMesh({{"tp", 4}});
const Rates kRates = rates_of(CostModel(), kMesh, {0});
constexpr std::int64_t kBytes = 1 << 20;

TransitionCost cost(const Placement& from, const Placement& to) {
  return transition_cost(from, to, kBytes, kRates, Owing::No).value();
}

TEST(TransitionCost, StayingIsFree) {
  EXPECT_EQ(cost(Replicate(), Replicate()).picoseconds, 0);
  EXPECT_EQ(cost(Shard(1), Shard(1)).picoseconds, 0);
  EXPECT_EQ(cost(Shard(1), Shard(1, Cut::in_blocks(2))).picoseconds, 0);
}

TEST(TransitionCost, SlicingSendsNothing) {
  EXPECT_FALSE(cost(Replicate(), Shard(0)).communicates);
  EXPECT_GT(cost(Replicate(), Shard(0)).picoseconds, 0);
}

TEST(TransitionCost, CollectivesAreOrderedByTheBytesTheySend) {
  // of a tile: an all-to-all and a reduce-scatter send 3/4, an all-reduce twice that, a gather 3
  EXPECT_LT(cost(Partial(), Shard(0)).picoseconds, cost(Partial(), Replicate()).picoseconds);
  EXPECT_LT(cost(Shard(0), Shard(1)).picoseconds, cost(Partial(), Replicate()).picoseconds);
  EXPECT_LT(cost(Partial(), Replicate()).picoseconds, cost(Shard(0), Replicate()).picoseconds);
}

// One arithmetic: an axis that chooses and a planner that compares see the same times.
TEST(TransitionCostLaw, ItIsWhatThePlannerPredictsForTheStep) {
  const TensorMeta meta({64, 64, 64}, DType::F32);
  const Placements kinds = {Replicate(), Shard(0), Shard(1), Partial(), MaskPartial(9)};
  int compared = 0;
  for (const Placement& from : kinds) {
    for (const Placement& to : kinds) {
      const DTensorSpec before(kMesh, {from}, meta);
      const auto estimate = transition_cost(from, to, tile_bytes(before), kRates, Owing::Allowed);
      if (!estimate || from == to) continue;
      const Step step = step_between(before, DTensorSpec(kMesh, {to}, meta), {});
      EXPECT_EQ(estimate->picoseconds, step.picoseconds) << to_string(step);
      EXPECT_EQ(estimate->communicates, communicates(step.kind)) << to_string(step);
      ++compared;
    }
  }
  EXPECT_GE(compared, 12);
}

TEST(TransitionCost, DebtsAreNotMadeUnasked) {
  const auto allowed = [](const Placement& from, const Placement& to) {
    return transition_cost(from, to, kBytes, kRates, Owing::Allowed);
  };
  EXPECT_FALSE(transition_cost(Replicate(), Partial(), kBytes, kRates, Owing::No));
  EXPECT_FALSE(allowed(Shard(0), Partial()));
  EXPECT_FALSE(allowed(Partial(ReduceOp::Max), Partial()));
  EXPECT_FALSE(allowed(Replicate(), Partial())->communicates);
}

TEST(TransitionCost, AMaskedSumIsASum) {
  EXPECT_FALSE(cost(MaskPartial(9), Partial()).communicates);
  EXPECT_FALSE(transition_cost(MaskPartial(9), Partial(ReduceOp::Max), kBytes, kRates, Owing::No));
}

TEST(TransitionCost, ADebtIsWhatAnAllReduceSends) {
  const std::int64_t paid_now = cost(Partial(), Replicate()).picoseconds;
  EXPECT_EQ(debt_cost(Partial(), kBytes, kRates), paid_now - time_of(kRates, 0, 0, kBytes));
  EXPECT_EQ(debt_cost(Shard(0), kBytes, kRates), 0);
}

TEST(TransitionCost, TimesBeyondAllNumbersStayInOrder) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  TransitionCost sum = *transition_cost(Shard(0), Replicate(), kMost, kRates, Owing::No);
  for (int k = 0; k < 100; ++k) {
    const TransitionCost before = sum;
    sum += sum;
    EXPECT_GE(sum.picoseconds, before.picoseconds);
  }
  EXPECT_EQ(sum.picoseconds, kMost);
}

}  // namespace transition_cost_test
}  // namespace tegula::inner
