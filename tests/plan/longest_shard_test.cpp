#include "tegula/plan/longest_shard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/spec/generated.h"

namespace tegula::inner {
namespace longest_shard_test {

TEST(LongestShardLaw, ItIsTheGreatestLocalSizeOfARank) {
  Random random(11);
  for (int round = 0; round < 3000; ++round) {
    const DeviceMesh mesh = generated_mesh(random, 5);
    const DTensorSpec spec = generated_spec(random, mesh, generated_meta(random, 2, 40));
    for (const DimCut& cut : spec.dim_cuts()) {
      std::int64_t longest = 0;
      for (const Coordinate& at : all_coordinates(mesh.shape())) {
        longest = std::max(longest, cut.local_size(at));
      }
      ASSERT_EQ(longest_shard(cut), longest) << to_string(spec);
    }
  }
}

TEST(LongestShard, TheFirstAxesLeavePieces) {
  const DTensorSpec spec = parse_spec("f32[20] on (a=2, b=3) as [S(0, sizes=[13, 7]), S(0)]");
  EXPECT_EQ(longest_shard(spec.dim_cuts()[0], 0), 20);
  EXPECT_EQ(longest_shard(spec.dim_cuts()[0], 1), 13);
  EXPECT_EQ(longest_shard(spec.dim_cuts()[0], 2), 5);
}

TEST(LongestShard, TheNumberOfRanksDoesNotMatter) {
  const DTensorSpec spec =
      parse_spec("f32[100000000, 4] on (a=4000, b=4000) as [S(0, blocks=3), S(0)]");
  EXPECT_EQ(longest_shard(spec.dim_cuts()[0]), 7);
}

}  // namespace longest_shard_test
}  // namespace tegula::inner
