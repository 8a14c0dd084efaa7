#include "tegula/spec/placed_otherwise.h"

#include <gtest/gtest.h>

#include "tests/spec/generated.h"

namespace tegula {
namespace placed_otherwise_test {

using namespace inner;

const DeviceMesh kMesh({{"dp", 2}, {"tp", 2}, {"ep", 2}});
const TensorMeta kMeta({8, 6}, DType::F32);

DTensorSpec reordered() {
  return {kMesh, {Shard(0), Shard(0), Shard(0)}, ShardOrder{{0, {2, 0, 1}}}, kMeta};
}

TEST(PlacedOtherwise, AxesThatStillCutKeepTheirOrder) {
  EXPECT_EQ(to_string(with_axes_whole(reordered(), {"dp"}).shard_order()), "{0: [2, 1]}");
  EXPECT_EQ(to_string(with_axes_whole(reordered(), {"dp", "ep"}).shard_order()), "{0: [1]}");
  EXPECT_EQ(to_string(with_axes_whole(reordered(), {"dp", "ep", "tp"}).shard_order()), "{}");
  EXPECT_EQ(to_string(with_order_kept(reordered(), {Shard(0), Partial(), Shard(0)}).shard_order()),
            "{0: [2, 0]}");
}

TEST(PlacedOtherwise, TheSamePlacementsAreTheSameSpec) {
  EXPECT_EQ(with_order_kept(reordered(), reordered().placements()), reordered());
  EXPECT_EQ(with_reductions_done(reordered()), reordered());
  EXPECT_EQ(with_axes_whole(reordered(), {}), reordered());
}

TEST(PlacedOtherwise, OneDimIsWholeAndTheOthersStayCut) {
  const DTensorSpec spec(kMesh, {Shard(0), Shard(1), Shard(0)}, ShardOrder{{0, {2, 0}}, {1, {1}}},
                         kMeta);
  EXPECT_EQ(to_string(with_dim_whole(spec, 1)), to_string(with_axes_whole(spec, {"tp"})));
  EXPECT_EQ(to_string(with_dim_whole(spec, 1).shard_order()), "{0: [2, 0]}");
  EXPECT_EQ(to_string(with_dim_whole(spec, 0).placements()), "[R, S(1), R]");
}

}  // namespace placed_otherwise_test
}  // namespace tegula
