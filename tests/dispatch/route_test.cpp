#include "tegula/redistribute/route.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/redistribute/carry_out.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/redistribute/routes.h"
#include "tests/dispatch/distributions.h"

namespace tegula::inner {
namespace route_test {

TEST(RouteLaw, CommunicatesIfAndOnlyIfAStepOfTheRankDoes) {
  for (const DeviceMesh& mesh :
       {DeviceMesh({{"a", 2}, {"b", 2}}), DeviceMesh({{"a", 3}, {"b", 1}})}) {
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const World world = World::fake(static_cast<int>(mesh.size()), rank);
      const Coordinate at = mesh.coordinate_of(rank).value();
      const std::vector<DTensorSpec> specs = all_specs(mesh, TensorMeta({7, 5}, DType::F32));
      for (const DTensorSpec& from : specs) {
        for (const DTensorSpec& to : specs) {
          const Route route(world, from, to);
          bool is_sending = false;
          for (const Step& step : route.plan().steps) {
            is_sending = is_sending || communicates(step_at(step.before, step.after, at));
          }
          ASSERT_EQ(route.communicates(), is_sending) << specs_text(from, to);
        }
      }
    }
  }
}

TEST(Route, RunsAndStartsAsOftenAsAsked) {
  run_ranks(4, [](World& world) {
    const DTensorSpec from = parse_spec("f32[6, 4] on (a=2, b=2) as [S(0), S(1)]");
    const DTensorSpec to = parse_spec("f32[6, 4] on (a=2, b=2) as [S(1), R]");
    const Coordinate at = from.mesh().coordinate_of(world.rank()).value();
    const Route route(world, from, to);
    const Route copy = route;
    EXPECT_TRUE(route.communicates());
    EXPECT_EQ(route.plan(), *world.part<RedistributePlanner>().plan(from, to));
    for (std::int64_t seed = 0; seed < 5; ++seed) {
      const at::Tensor whole = numbers({6, 4}, at::kFloat, seed);
      const at::Tensor tile = cut_tile(whole, from, at);
      EXPECT_TRUE(at::equal(route.run(tile), cut_tile(whole, to, at)));
      EXPECT_TRUE(at::equal(copy.start(tile).wait(), cut_tile(whole, to, at)));
    }
  });
}

TEST(Route, MayBeRunByAnyThread) {
  run_ranks(2, [](World& world) {
    const Route route(world, parse_spec("f32[4] on (a=2) as [S(0)]"),
                      parse_spec("f32[4] on (a=2) as [R]"));
    at::Tensor whole;
    std::thread([&] { whole = route.run(at::full({2}, world.rank(), at::kFloat)); }).join();
    EXPECT_TRUE(at::equal(whole, at::tensor({0.F, 0.F, 1.F, 1.F})));
  });
}

TEST(Route, CollectivesAreNotFollowedByACopy) {
  run_ranks(2, [](World& world) {
    // A second copy would come from torch's allocator and leave the first to the group's buffers,
    // from where the next call would take it.
    const auto spec = [](const char* as) {
      return parse_spec("f32[4, 6] on (a=2) as " + std::string(as));
    };
    const Group group = world.group(spec("[R]").mesh(), "a");
    const auto expect_taken_from_group = [&](const char* from, const char* to,
                                             const at::Tensor& tile, const at::Tensor& like) {
      const Route route(world, spec(from), spec(to));
      const void* warm = nullptr;
      {
        const at::Tensor result = group.broadcast(like, 0);
        warm = result.data_ptr();
      }
      EXPECT_EQ(route.run(tile).data_ptr(), warm) << from << " -> " << to;
    };
    expect_taken_from_group("[S(0)]", "[R]", at::ones({2, 6}), at::ones({4, 6}));
    expect_taken_from_group("[S(1)]", "[R]", at::ones({4, 3}), at::ones({4, 6}));
    expect_taken_from_group("[P(sum)]", "[R]", at::ones({4, 6}), at::ones({4, 6}));
    expect_taken_from_group("[P(sum)]", "[S(0)]", at::ones({4, 6}), at::ones({2, 6}));
    expect_taken_from_group("[S(1)]", "[S(0)]", at::ones({4, 3}), at::ones({2, 6}));
  });
}

TEST(Route, ATileThatDoesNotFitIsRefusedEachTime) {
  const World world = World::alone();
  const Route route(world, parse_spec("f32[4] on (a=1) as [R]"),
                    parse_spec("f32[4] on (a=1) as [S(0)]"));
  EXPECT_FALSE(route.communicates());
  for (const at::Tensor& tile : {at::Tensor(), at::ones({5}), at::ones({4}, at::kDouble)}) {
    EXPECT_THROW(route.run(tile), UsageError);
    EXPECT_THROW(route.start(tile), UsageError);
  }
  EXPECT_TRUE(at::equal(route.run(at::ones({4})), at::ones({4})));
}

TEST(Route, OfOtherThanTwoSpecsOfOneTensorIsRefused) {
  const World world = World::alone();
  const DTensorSpec spec = parse_spec("f32[4] on (a=1) as [R]");
  EXPECT_THROW(Route(world, spec, parse_spec("f32[5] on (a=1) as [R]")), UsageError);
  EXPECT_THROW(Route(world, spec, parse_spec("f32[4] on (b=1) as [R]")), UsageError);
  EXPECT_THROW(Route(world, spec, spec, {at::kLong}), UsageError);
}

TEST(Routes, AreRememberedButDoNotKeepTheirWorldAlive) {
  struct Witness {
    std::shared_ptr<int> held = std::make_shared<int>(0);
  };
  std::weak_ptr<int> witness;
  {
    const World world = World::fake(4, 1);
    witness = world.part<Witness>().held;
    const DeviceMesh mesh = world.mesh({{"a", 2}, {"b", 2}});
    const TensorMeta meta({8}, DType::F32);
    const DTensorSpec from(mesh, {Shard(0), Shard(0)}, meta);
    const DTensorSpec to(mesh, {Replicate(), Replicate()}, meta);
    const auto route = [&] { return world.part<Routes>().find_or_make(world, from, to, {}); };
    EXPECT_EQ(&route().plan(), &route().plan());
    redistribute_tile(world, at::empty({2}, at::device(at::kMeta)), from, to);
    EXPECT_FALSE(witness.expired());
  }
  EXPECT_TRUE(witness.expired());
}

TEST(Routes, FollowTheCostModel) {
  const World world = World::fake(4, 1);
  const DTensorSpec from = parse_spec("f32[8] on (a=2, b=2) as [S(0), S(0)]");
  const DTensorSpec to = parse_spec("f32[8] on (a=2, b=2) as [R, R]");
  const auto route = [&] { return world.part<Routes>().find_or_make(world, from, to, {}); };
  const Route before = route();
  auto& planner = world.part<RedistributePlanner>();
  planner.set_cost_model(CostModel::calibrated({50, 1}, 8));
  EXPECT_NE(route().plan(), before.plan()) << "the plans predict other times";
  EXPECT_EQ(route().plan(), *planner.plan(from, to));
}

TEST(Routes, MoreThanAreRememberedStayRight) {
  const World world = World::alone();
  for (std::int64_t size = 1; size <= static_cast<std::int64_t>(Routes::kMost) + 50; ++size) {
    const TensorMeta meta({size}, DType::F32);
    const DeviceMesh mesh({{"a", 1}});
    const at::Tensor tile = at::ones({size});
    const at::Tensor moved =
        redistribute_tile(world, tile, {mesh, {Replicate()}, meta}, {mesh, {Shard(0)}, meta});
    ASSERT_EQ(moved.numel(), size);
    ASSERT_FALSE(moved.is_alias_of(tile));
  }
}

}  // namespace route_test
}  // namespace tegula::inner
