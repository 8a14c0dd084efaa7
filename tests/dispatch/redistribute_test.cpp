#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tests/dispatch/distributions.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace redistribute_test {

struct Case {
  DTensorSpec from;
  DTensorSpec to;
};

const std::vector<Shape> kShapes = {{8, 4}, {5, 3}, {1, 4}, {0, 3}, {7}, {}};

TensorMeta row_major(const Shape& shape) { return {shape, DType::F32}; }
TensorMeta transposed(const Shape& shape) {
  Shape like;
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    like.push_back(static_cast<std::int64_t>(dim) + 1);
  return {shape, dense_strides_like(shape, like), DType::F32};
}

using Redistribute = std::function<at::Tensor(const World&, const at::Tensor&, const Case&)>;

at::Tensor at_once(const World& world, const at::Tensor& tile, const Case& one) {
  return redistribute_tile(world, tile, one.from, one.to);
}

at::Tensor async(const World& world, const at::Tensor& tile, const Case& one) {
  return redistribute_tile_async(world, tile, one.from, one.to).wait();
}

at::Tensor step_by_step(const World& world, at::Tensor tile, const Case& one) {
  const std::shared_ptr<const Plan> plan = RedistributePlanner().plan(one.from, one.to);
  for (const Step& step : plan->steps) {
    tile = redistribute_tile(world, tile, step.before, step.after);
  }
  return tile;
}

// Runs all cases with one set of ranks and compares with the definition.
void check(const std::vector<Case>& cases, const Redistribute& redistribute = at_once) {
  std::vector<std::vector<at::Tensor>> tiles;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    tiles.push_back(tiles_of(cases[i].from, static_cast<std::int64_t>(i)));
  }
  std::vector<std::vector<at::Tensor>> results = tiles;
  run_ranks(static_cast<int>(tiles.front().size()), [&](World& world) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::size_t place = place_of(cases[i].from.mesh(), world.rank());
      results[i][place] = redistribute(world, tiles[i][place], cases[i]);
    }
  });
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [from, to] = cases[i];
    expect_tiles(results[i], join_tiles(tiles[i], from), to, specs_text(from, to));
    if (testing::Test::HasFailure()) return;
  }
}

std::vector<Case> all_pairs(const DeviceMesh& mesh, const TensorMeta& from, const TensorMeta& to) {
  std::vector<Case> cases;
  for (const DTensorSpec& a : all_specs(mesh, from)) {
    for (const DTensorSpec& b : all_specs(mesh, to)) cases.push_back({a, b});
  }
  return cases;
}

// One pair in `step`, another tensor for each `step`.
std::vector<Case> some_pairs(const DeviceMesh& mesh, std::size_t step) {
  std::vector<Case> cases;
  for (const Shape& shape : kShapes) {
    const std::vector<Case> all = all_pairs(mesh, row_major(shape), row_major(shape));
    for (std::size_t i = cases.size() % step; i < all.size(); i += step) cases.push_back(all[i]);
  }
  return cases;
}

TEST(RedistributeLaw, EveryPairOfPlacementsOnOneAxis) {
  for (std::int64_t ranks = 1; ranks <= 4; ++ranks) {
    const DeviceMesh mesh({{"a", ranks}});
    std::vector<Case> cases;
    for (const Shape& shape : kShapes) {
      for (const auto& [from, to] : {std::pair(row_major(shape), row_major(shape)),
                                     std::pair(transposed(shape), row_major(shape)),
                                     std::pair(row_major(shape), transposed(shape))}) {
        const std::vector<Case> more = all_pairs(mesh, from, to);
        cases.insert(cases.end(), more.begin(), more.end());
      }
    }
    check(cases);
  }
}

TEST(RedistributeLaw, EveryPairOfPlacementsOnTwoAxes) {
  for (const DeviceMesh& mesh :
       {DeviceMesh({{"a", 2}, {"b", 2}}), DeviceMesh({{"a", 2}, {"b", 3}})}) {
    check(all_pairs(mesh, row_major({7, 5}), row_major({7, 5})));
  }
}

TEST(RedistributeLaw, PairsOfPlacementsOnTwoAxesForOtherShapes) {
  check(some_pairs(DeviceMesh({{"a", 2}, {"b", 2}}), 23));
  check(some_pairs(DeviceMesh({{"a", 3}, {"b", 1}}), 29));
  check(some_pairs(DeviceMesh({{"a", 2}, {"b", 2}}, {3, 1, 0, 2})[{"b", "a"}], 31));
}

TEST(RedistributeLaw, PairsOfSpecsByChanceOnThreeAxes) {
  Random random(5);
  const DeviceMesh mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  std::vector<Case> cases;
  while (cases.size() < 300) {
    const TensorMeta meta(generated_meta(random, 3, 9).shape(), DType::F32);
    const Case one{generated_spec(random, mesh, meta), generated_spec(random, mesh, meta)};
    const auto is_exact = [](const DTensorSpec& spec) {
      for (const Placement& placement : spec.placements()) {
        const std::optional<ReduceOp> op = owed_reduction(placement);
        if (op && *op != ReduceOp::Sum && *op != ReduceOp::Max && *op != ReduceOp::Min)
          return false;
      }
      return true;
    };
    if (is_exact(one.from) && is_exact(one.to)) cases.push_back(one);
  }
  check(cases);
}

TEST(RedistributeLaw, AsyncAndStepByStepComeToTheSame) {
  check(some_pairs(DeviceMesh({{"a", 2}, {"b", 2}}), 41), async);
  check(some_pairs(DeviceMesh({{"a", 2}, {"b", 2}}), 43), step_by_step);
}

TEST(Redistribute, EveryReductionCanBeOwedAndDone) {
  for (ReduceOp op : kReduceOps) {
    const bool is_avg = op == ReduceOp::Avg;
    const TensorMeta meta({5, 3}, is_avg ? DType::F64 : DType::I64);
    const DeviceMesh mesh({{"a", 3}});
    const DTensorSpec whole(mesh, {Replicate()}, meta);
    const DTensorSpec owed(mesh, {Partial(op)}, meta);
    const DTensorSpec shards(mesh, {Shard(0)}, meta);
    check({{whole, owed}, {owed, whole}, {owed, shards}, {shards, owed}});
  }
}

TEST(Redistribute, EveryElementTypeMoves) {
  for (DType dtype : all_dtypes()) {
    if (!libtorch_has(dtype)) continue;
    std::vector<at::Tensor> moved(3);
    const DeviceMesh mesh({{"a", 3}});
    const auto spec = [&](const char* as) {
      return DTensorSpec(mesh, parse_placements(as), TensorMeta({4, 5}, dtype));
    };
    const at::Tensor whole = numbers({4, 5}, at::kFloat, 1).to(scalar_type_of(dtype));
    run_ranks(3, [&](World& world) {
      at::Tensor tile = cut_tile(whole, spec("[R]"), {world.rank()});
      DTensorSpec at = spec("[R]");
      for (const char* next : {"[S(0, blocks=2)]", "[S(1)]", "[S(1, sizes=[0, 4, 1])]", "[R]"}) {
        tile = redistribute_tile(world, tile, at, spec(next));
        at = spec(next);
      }
      moved[static_cast<std::size_t>(world.rank())] = tile;
    });
    for (const at::Tensor& tile : moved) {
      EXPECT_TRUE(at::equal(tile.view(at::kByte), whole.view(at::kByte))) << name_of(dtype);
    }
  }
}

TEST(Redistribute, BoolsComplexNumbersAndShortFloatsAreReduced) {
  for (DType dtype : {DType::Bool, DType::C64, DType::C128, DType::BF16, DType::F16}) {
    const DeviceMesh mesh({{"a", 2}});
    const TensorMeta meta({5, 3}, dtype);
    const DTensorSpec owed(mesh, {Partial()}, meta);
    check({{owed, DTensorSpec(mesh, {Shard(0)}, meta)},
           {owed, DTensorSpec(mesh, {Replicate()}, meta)},
           {DTensorSpec(mesh, {Shard(1)}, meta), owed}});
  }
}

TEST(Redistribute, EqualSpecsGiveTheTileItself) {
  const DTensorSpec spec = parse_spec("f32[4] on (a=1) as [S(0)]");
  const World world = World::alone();
  const at::Tensor tile = at::ones({4});
  EXPECT_TRUE(redistribute_tile(world, tile, spec, spec).is_same(tile));
  EXPECT_TRUE(redistribute_tile_async(world, tile, spec, spec).wait().is_same(tile));
}

TEST(Redistribute, OtherwiseTheResultHasItsOwnMemory) {
  const World world = World::alone();
  const at::Tensor tile = at::ones({4});
  const at::Tensor result = redistribute_tile(world, tile, parse_spec("f32[4] on (a=1) as [S(0)]"),
                                              parse_spec("f32[4] on (a=1) as [R]"));
  EXPECT_FALSE(result.is_alias_of(tile));
  EXPECT_FALSE(result.is_view());
}

TEST(Redistribute, ATileMayHaveAnyStrides) {
  run_ranks(2, [](World& world) {
    const DTensorSpec from = parse_spec("f32[4, 3] on (a=2) as [S(0)]");
    const DTensorSpec to = parse_spec("f32[4, 3] on (a=2) as [S(1)]");
    const at::Tensor whole = numbers({4, 3}, at::kFloat, 1);
    const at::Tensor tile = cut_tile(whole, from, {world.rank()}).t().contiguous().t();
    EXPECT_TRUE(
        at::equal(redistribute_tile(world, tile, from, to), cut_tile(whole, to, {world.rank()})));
  });
}

TEST(Redistribute, AnExpandedDimIsDense) {
  run_ranks(2, [](World& world) {
    const DTensorSpec from = parse_spec("f32[4, 3] strides [1, 0] on (a=2) as [R]");
    const DTensorSpec to = parse_spec("f32[4, 3] strides [1, 0] on (a=2) as [S(1)]");
    const at::Tensor whole = numbers({4, 1}, at::kFloat, 1).expand({4, 3});
    const at::Tensor tile = redistribute_tile(world, whole, from, to);
    EXPECT_TRUE(at::equal(tile, whole.narrow(1, world.rank() * 2, 2 - world.rank())));
    EXPECT_TRUE(tile.is_contiguous());
  });
}

TEST(Redistribute, ResultsHaveNoHistory) {
  run_ranks(2, [](World& world) {
    const at::Tensor tile = at::ones({2}).requires_grad_();
    const at::Tensor whole = redistribute_tile(world, tile, parse_spec("f32[4] on (a=2) as [S(0)]"),
                                               parse_spec("f32[4] on (a=2) as [R]"));
    EXPECT_FALSE(whole.requires_grad());
  });
}

TEST(Redistribute, FibersKeepToThemselves) {
  run_ranks(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}})["tp"];
    const TensorMeta meta({4}, DType::I64);
    const at::Tensor tile = at::full({2}, world.rank(), at::kLong);
    const at::Tensor whole =
        redistribute_tile(world, tile, {mesh, {Shard(0)}, meta}, {mesh, {Replicate()}, meta});
    const std::int64_t first = world.rank() / 2 * 2;
    EXPECT_TRUE(at::equal(whole, at::tensor({first, first, first + 1, first + 1}, at::kLong)));
  });
}

TEST(Redistribute, RanksOutsideOfTheMeshTakeNoPart) {
  run_ranks(3, [](World& world) {
    const DTensorSpec from = parse_spec("f32[4] on (a=2) as [S(0)]");
    const DTensorSpec to = parse_spec("f32[4] on (a=2) as [R]");
    const at::Tensor tile = world.rank() < 2 ? at::ones({2}) : at::empty({0});
    const at::Tensor whole = redistribute_tile(world, tile, from, to);
    EXPECT_EQ(whole.numel(), world.rank() < 2 ? 4 : 0);
    EXPECT_EQ(redistribute_tile_async(world, tile, from, to).wait().numel(), whole.numel());
  });
}

TEST(Redistribute, AWireTypeRoundsTheSameOnAllRanks) {
  run_ranks(2, [](World& world) {
    const DTensorSpec from = parse_spec("f32[4] on (a=2) as [S(0)]");
    const DTensorSpec to = parse_spec("f32[4] on (a=2) as [R]");
    const DTensorSpec owed = parse_spec("f32[4] on (a=2) as [P(sum)]");
    const at::Tensor whole = at::tensor({1.0001F, 2.F, 3.0003F, 4.F});
    const at::Tensor tile = cut_tile(whole, from, {world.rank()});
    const at::Tensor rounded = whole.to(at::kBFloat16).to(at::kFloat);
    EXPECT_TRUE(at::equal(redistribute_tile(world, tile, from, to, {at::kBFloat16}), rounded));
    EXPECT_TRUE(
        at::equal(redistribute_tile_async(world, tile, from, to, {at::kBFloat16}).wait(), rounded));
    const at::Tensor padded = redistribute_tile(world, tile, from, owed, {at::kBFloat16});
    EXPECT_TRUE(at::equal(padded.narrow(0, world.rank() * 2, 2), tile)) << "nothing was sent";
    EXPECT_THROW(redistribute_tile(world, tile, from, to, {at::kLong}), UsageError);
  });
}

TEST(Redistribute, WaitingMayBeRepeatedInAnyThread) {
  run_ranks(2, [](World& world) {
    const AsyncTile whole =
        redistribute_tile_async(world, at::ones({2}), parse_spec("f32[4] on (a=2) as [S(0)]"),
                                parse_spec("f32[4] on (a=2) as [R]"));
    std::vector<at::Tensor> got(4);
    std::vector<std::thread> threads;
    for (at::Tensor& tensor : got) threads.emplace_back([&] { tensor = whole.wait(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(whole.is_done());
    EXPECT_TRUE(at::equal(got.front(), at::ones({4})));
    for (const at::Tensor& tensor : got) EXPECT_TRUE(tensor.is_same(got.front()));
  });
}

TEST(Redistribute, AnAxisOfOneRankMakesNoGroup) {
  const World world = World::alone();
  const DTensorSpec from = parse_spec("f32[4] on (a=1@carrier_pigeon) as [P(sum)]");
  const DTensorSpec to = parse_spec("f32[4] on (a=1@carrier_pigeon) as [S(0)]");
  EXPECT_TRUE(at::equal(redistribute_tile(world, at::ones({4}), from, to), at::ones({4})));
}

TEST(Redistribute, AnImaginedWorldGivesShapes) {
  const World world = World::fake(8, 5);
  const DTensorSpec from = parse_spec("f32[10, 6] on (a=2, b=4) as [S(0), S(1)]");
  const DTensorSpec to = parse_spec("f32[10, 6] on (a=2, b=4) as [P(sum), S(0)]");
  const at::Tensor tile = at::empty(local_shape(from, {1, 1}), at::device(at::kMeta));
  const at::Tensor moved = redistribute_tile(world, tile, from, to);
  EXPECT_EQ(moved.sizes().vec(), local_shape(to, {1, 1}));
  EXPECT_TRUE(moved.is_meta());
}

TEST(Redistribute, ATileThatDoesNotFitIsRefused) {
  const World world = World::alone();
  const DTensorSpec spec = parse_spec("f32[4] on (a=1) as [R]");
  const DTensorSpec to = parse_spec("f32[4] on (a=1) as [S(0)]");
  EXPECT_THROW(redistribute_tile(world, at::ones({4}, at::kDouble), spec, to), UsageError);
  EXPECT_THROW(redistribute_tile(world, at::Tensor(), spec, to), UsageError);
  try {
    redistribute_tile(world, at::ones({5}), spec, to);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: the tile does not fit its spec\n"
                 "  tile    f32[5]\n"
                 "  wanted  f32[4]\n"
                 "  spec    f32[4] on (a=1) as [R]\n"
                 "  at      [0]\n"
                 "  hint    check the tile's shape and element type");
  }
}

}  // namespace redistribute_test
}  // namespace tegula::inner
