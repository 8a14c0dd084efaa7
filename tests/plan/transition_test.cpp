#include "tegula/plan/transition.h"

#include <gtest/gtest.h>

#include "tegula/plan/step_cost.h"
#include "tegula/plan/tile_step.h"

namespace tegula::inner {
namespace transition_test {

const Placements kOneOfEach = {Replicate(), Shard(0), Partial(), MaskPartial(9)};

std::string step(const Placement& from, const Placement& to) {
  const auto kind = step_kind(from, to);
  return kind ? std::string(name_of(*kind)) : "none";
}

TEST(Transition, TheTableIsTheOneInTheHeader) {
  const std::vector<std::vector<std::string>> table = {
      {"none", "slice", "owe", "owe"},
      {"all-gather", "all-to-all", "pad", "pad"},
      {"all-reduce", "reduce-scatter", "none", "none"},
      {"all-reduce", "reduce-scatter", "rename", "rename"},
  };
  ASSERT_EQ(kOneOfEach.size(), std::variant_size_v<Placement>);
  for (std::size_t from = 0; from < kOneOfEach.size(); ++from) {
    for (std::size_t to = 0; to < kOneOfEach.size(); ++to) {
      EXPECT_EQ(step(kOneOfEach[from], kOneOfEach[to]), table[from][to])
          << to_string(kOneOfEach[from]) << " -> " << to_string(kOneOfEach[to]);
    }
  }
}

TEST(Transition, OnlySumsAreMadeOfShardsAndOfMasks) {
  EXPECT_EQ(step(Shard(0), Partial(ReduceOp::Max)), "none");
  EXPECT_EQ(step(MaskPartial(9), Partial(ReduceOp::Avg)), "none");
  EXPECT_EQ(step(Replicate(), Partial(ReduceOp::Max)), "owe");
}

// What is planned is what a rank does.
TEST(TransitionLaw, ARankCommunicatesWhereTheTableSaysSo) {
  const DeviceMesh mesh({{"a", 2}});
  const TensorMeta meta({4, 4}, DType::F32);
  for (const Placement& from : kOneOfEach) {
    for (const Placement& to :
         {Placement(Replicate()), Placement(Shard(1)), Placement(Partial())}) {
      const DTensorSpec before(mesh, {from}, meta);
      const DTensorSpec after(mesh, {to}, meta);
      if (before == after) continue;
      const StepKind kind = step_kind(before, after, changed_axes(before, after));
      EXPECT_EQ(kind, step_kind(from, to));
      EXPECT_EQ(communicates(step_at(before, after, {1})), communicates(kind)) << name_of(kind);
    }
  }
}

TEST(StepCost, NumbersBeyondAllNumbersStopAtTheGreatest) {
  const Rates rates{8, 1, 1, 1};
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(bytes_after(StepKind::AllGather, rates, kMost / 2), kMost);
  EXPECT_EQ(peak_of(kMost, kMost), kMost);
  EXPECT_GT(cost_of(StepKind::AllGather, rates, kMost, kMost).picoseconds,
            cost_of(StepKind::AllGather, rates, 1 << 30, 1 << 30).picoseconds);
}

TEST(StepCost, ATileGrowsByGathersAndShrinksByScatters) {
  const Rates rates{4, 1, 1, 1};
  EXPECT_EQ(bytes_after(StepKind::AllGather, rates, 10), 40);
  EXPECT_EQ(bytes_after(StepKind::Slice, rates, 10), 3);
  EXPECT_EQ(bytes_after(StepKind::ReduceScatter, rates, 8), 2);
  EXPECT_EQ(bytes_after(StepKind::AllReduce, rates, 10), 10);
}

}  // namespace transition_test
}  // namespace tegula::inner
