#include "tegula/plan/remaining_time.h"

#include <gtest/gtest.h>

#include "tegula/plan/edges.h"
#include "tegula/plan/plan.h"
#include "tegula/plan/search.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace remaining_time_test {

// Asked before and after more has been found out, along a way that is chosen by chance.
TEST(RemainingTimeLaw, NoEdgeShortensItByMoreThanItTakes) {
  Random random(1);
  const DeviceMesh mesh({{"a", 2}, {"b", 3}, {"c", 2}});
  for (int round = 0; round < 100; ++round) {
    const TensorMeta meta({random.between(1, 600), 30, 7}, DType::F32);
    const DTensorSpec from = generated_spec(random, mesh, meta);
    const DTensorSpec to = generated_spec(random, mesh, meta);
    const StateSpace space(from, to);
    Edges edges(space, {});
    RemainingTime remaining(space, edges.rates());
    DistState state = space.from();
    for (int step = 0; step < 6; ++step) {
      const std::int64_t here = remaining.so_far(state);
      std::vector<DistState> ends;
      for (const Edge& edge : edges.from(state)) {
        for_each_state(edge.ends, [&](DistState end) {
          ASSERT_LE(here, edge.picoseconds + remaining.so_far(end)) << from << " -> " << to;
          ends.push_back(end);
        });
      }
      EXPECT_GE(remaining.sharpened(state), here);
      if (ends.empty()) break;
      state = random.pick(ends);
    }
    EXPECT_EQ(remaining.so_far(space.to()), 0);
  }
}

TEST(RemainingTime, ItIsExactWhereTheOrderOfAxesDoesNotMatter) {
  const DTensorSpec from = parse_spec("f32[64, 64, 8] on (a=2, b=4) as [S(0), P(sum)]");
  const DTensorSpec to = parse_spec("f32[64, 64, 8] on (a=2, b=4) as [R, S(1)]");
  const StateSpace space(from, to);
  const Edges edges(space, {});
  std::int64_t time = 0;
  DTensorSpec at = from;
  const std::vector<DistState> way = fastest_way(space, {}).value();
  for (DistState state : way) {
    time += step_between(at, space.spec_of(state), {}).picoseconds;
    at = space.spec_of(state);
  }
  EXPECT_EQ(RemainingTime(space, edges.rates()).so_far(space.from()), time);
}

}  // namespace remaining_time_test
}  // namespace tegula::inner
