#include "tegula/files/rename.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace rename_test {

TEST(Rename, PutsWhatAsterisksStandForInTheirPlaces) {
  EXPECT_EQ(renamed("model.layers.7.w1", "model.layers.*.w1", "layers.*.gate"), "layers.7.gate");
  EXPECT_EQ(renamed("model.norm.weight", "model.**", "**"), "norm.weight");
  EXPECT_EQ(renamed("a.b.c", "*.*.c", "*-*"), "a-b");
  EXPECT_EQ(renamed("a.b.c", "*.c", "*"), std::nullopt);
  EXPECT_EQ(renamed("a.b.c", "**.c", "**"), "a.b");
  EXPECT_EQ(renamed("head", "head", "lm_head.weight"), "lm_head.weight");
}

TEST(Rename, FollowsTheFirstPatternThatMatches) {
  const Renames renames = {{"a.*", "first.*"}, {"**", "second.**"}};
  EXPECT_EQ(renamed("a.x", renames), "first.x");
  EXPECT_EQ(renamed("a.x.y", renames), "second.a.x.y");
  EXPECT_EQ(renamed("a", Renames{}), "a");
}

TEST(Rename, RefusesAFormWithMoreAsterisksThanItsPattern) {
  EXPECT_THROW(check_renames({{"a.*", "*.*"}}), UsageError);
}

}  // namespace rename_test
}  // namespace tegula::inner
