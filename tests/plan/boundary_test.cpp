#include "tegula/plan/boundary.h"

#include <gtest/gtest.h>

namespace tegula::inner {
namespace boundary_test {

using Intervals = std::vector<Interval>;

TEST(Boundary, ZerosStayBeyond) {
  EXPECT_EQ(continued({-2, 9}, 5, Boundary::Zeros), (Intervals{{-2, 9}}));
}

TEST(Boundary, ClippedEndsWithTheDim) {
  EXPECT_EQ(continued({-2, 9}, 5, Boundary::Clipped), (Intervals{{0, 5}}));
  EXPECT_EQ(continued({5, 3}, 5, Boundary::Clipped), (Intervals{{5, 0}}));
  EXPECT_EQ(continued({-4, 2}, 5, Boundary::Clipped), (Intervals{{0, 0}}));
}

TEST(Boundary, PeriodicComesRoundAsOftenAsItTakes) {
  EXPECT_EQ(continued({-2, 9}, 5, Boundary::Periodic), (Intervals{{3, 2}, {0, 5}, {0, 2}}));
  EXPECT_EQ(continued({-3, 6}, 2, Boundary::Periodic), (Intervals{{1, 1}, {0, 2}, {0, 2}, {0, 1}}));
  EXPECT_TRUE(can_continue({-30, 60}, 2, Boundary::Periodic));
  EXPECT_FALSE(can_continue({0, 1}, 0, Boundary::Periodic));
}

TEST(Boundary, ReflectDoesNotRepeatTheEnd) {
  EXPECT_EQ(continued({-2, 8}, 4, Boundary::Reflect),
            (Intervals{{2, 1}, {1, 1}, {0, 4}, {2, 1}, {1, 1}}));
  EXPECT_TRUE(can_continue({-3, 10}, 4, Boundary::Reflect));
  EXPECT_FALSE(can_continue({-4, 5}, 4, Boundary::Reflect));
  EXPECT_FALSE(can_continue({3, 5}, 4, Boundary::Reflect));
}

TEST(Boundary, NearestRepeatsTheEnd) {
  EXPECT_EQ(continued({-2, 7}, 4, Boundary::Nearest), (Intervals{{0, 1}, {0, 1}, {0, 4}, {3, 1}}));
}

}  // namespace boundary_test
}  // namespace tegula::inner
