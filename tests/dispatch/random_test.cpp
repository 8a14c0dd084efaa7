// The state of draws, and the law that makes random numbers distributed: tiles hold the bits of the
// whole.
#include "tegula/random/random.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/random/index_runs.h"
#include "tegula/random/philox_batch.h"
#include "tegula/random/random_fill.h"
#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace {

constexpr Draw kDraw{.seed = 20260101, .number = 5};

at::Tensor filled(const Shape& shape, at::ScalarType type, const Distribution& distribution,
                  const Draw& draw = kDraw) {
  at::Tensor tensor = at::empty(shape, type);
  fill_random(tensor, distribution, draw);
  return tensor;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return a.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

// A tile of any strides, dense or not, with the shape that the spec gives it.
at::Tensor empty_tile(Random& random, const Shape& shape, at::ScalarType type) {
  if (shape.empty() || random.one_in(3)) return at::empty(shape, type);
  Shape order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  Shape padded;
  for (std::int64_t dim : order) {
    padded.push_back(shape[static_cast<std::size_t>(dim)] + random.between(0, 2));
  }
  Shape inverse(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  at::Tensor tile = at::empty(padded, type).permute(inverse);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const auto d = static_cast<std::int64_t>(dim);
    tile = tile.narrow(d, tile.size(d) - shape[dim], shape[dim]);
  }
  return tile;
}

std::vector<Distribution> all_distributions() {
  return {Uniform{-1, 3},  Normal{2, 0.5},  LogNormal{0, 1},  Exponential{0.5}, Cauchy{1, 2},
          Geometric{0.25}, Bernoulli{0.75}, Integers{-5, 90}, Integers{0, {}}};
}

void expect_tiles_of_the_whole(Random& random, const DTensorSpec& spec,
                               const Distribution& distribution) {
  const at::ScalarType type = scalar_type_of(spec.meta().dtype());
  const at::Tensor whole = filled(spec.shape(), type, distribution);
  for (const Coordinate& coordinate : all_coordinates(spec.mesh().shape())) {
    const at::Tensor tile = empty_tile(random, local_shape(spec, coordinate), type);
    fill_random(tile, spec, coordinate, distribution, kDraw);
    EXPECT_TRUE(same_bits(tile, cut_tile(whole, spec, coordinate)))
        << spec << " from " << to_string(distribution);
  }
}

TEST(RandomFillLaw, TilesOfEveryDistributionAndTypeHoldTheBitsOfTheWhole) {
  Random random(1);
  for (const char* rest : {"[10, 7] on (dp=2, tp=3) as [S(0), S(1)]",
                           "[10, 7] on (dp=2, tp=3) as [R, S(0, sizes=[7, 0, 3])]",
                           "[10, 7] strides [1, 10] on (dp=2, tp=3) as [S(0)[1], S(0)[0]]"}) {
    for (const char* type : {"f16", "bf16", "f32", "f64"}) {
      for (const Distribution& distribution : all_distributions()) {
        expect_tiles_of_the_whole(random, parse_spec(std::string(type) + rest), distribution);
      }
    }
    for (const char* type : {"i8", "i16", "i32", "i64"}) {
      for (const Distribution& distribution : std::vector<Distribution>{
               Geometric{0.25}, Bernoulli{0.75}, Integers{-5, 90}, Integers{}}) {
        expect_tiles_of_the_whole(random, parse_spec(std::string(type) + rest), distribution);
      }
    }
    for (const char* type : {"u8", "u16", "u32", "u64", "bool"}) {
      for (const Distribution& distribution :
           std::vector<Distribution>{Bernoulli{0.75}, Integers{0, 2}, Integers{}}) {
        expect_tiles_of_the_whole(random, parse_spec(std::string(type) + rest), distribution);
      }
    }
  }
}

TEST(RandomFillLaw, TilesOfAnySpecAndStridesHoldTheBitsOfTheWhole) {
  Random random(2);
  for (int i = 0; i < 300; ++i) {
    const TensorMeta any = generated_meta(random, 4, 9);
    const TensorMeta meta(any.shape(), i % 2 == 0 ? DType::F32 : DType::F64);
    const DTensorSpec spec = generated_spec(random, generated_mesh(random, 4), meta);
    expect_tiles_of_the_whole(random, spec, Uniform{});
  }
}

TEST(RandomFillLaw, ProbabilitiesPerElementTossAsTheWholeDoes) {
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    const TensorMeta meta(generated_meta(random, 3, 9).shape(), DType::F32);
    const DTensorSpec spec = generated_spec(random, generated_mesh(random, 3), meta);
    const at::Tensor p = filled(spec.shape(), at::kFloat, Uniform{}, {1, 1});
    at::Tensor whole = at::empty(spec.shape());
    fill_bernoulli(whole, p, kDraw);
    for (const Coordinate& coordinate : all_coordinates(spec.mesh().shape())) {
      const at::Tensor tile = empty_tile(random, local_shape(spec, coordinate), at::kFloat);
      fill_bernoulli(tile, spec, coordinate, cut_tile(p, spec, coordinate), kDraw);
      EXPECT_TRUE(same_bits(tile, cut_tile(whole, spec, coordinate))) << spec;
    }
  }
}

TEST(RandomFillLaw, OneProbabilityForAllIsBernoulli) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
    at::Tensor tossed = at::empty({30, 40}, type);
    fill_bernoulli(tossed, at::full({40}, 0.3, at::kDouble).requires_grad_(), kDraw);
    EXPECT_TRUE(same_bits(tossed, filled({30, 40}, type, Bernoulli{0.3})));
  }
}

TEST(RandomFillLaw, AShapeOnlySaysHowElementsAreCounted) {
  const at::Tensor flat = filled({60}, at::kFloat, Normal{});
  EXPECT_TRUE(same_bits(filled({3, 4, 5}, at::kFloat, Normal{}), flat.view({3, 4, 5})));
  EXPECT_TRUE(same_bits(filled({20}, at::kFloat, Normal{}), flat.narrow(0, 0, 20)));
  EXPECT_TRUE(same_bits(filled({}, at::kFloat, Normal{}), flat[0]));
}

TEST(RandomFillLaw, RanksOfAnyMeshAgree) {
  const Shape shape{6, 10};
  std::vector<at::Tensor> wholes;
  for (int ranks : {1, 2, 3, 7}) {
    std::vector<at::Tensor> tiles(static_cast<std::size_t>(ranks));
    const DTensorSpec spec(DeviceMesh({{"x", ranks}}), {Shard(1)}, TensorMeta(shape, DType::F32));
    run_ranks(ranks, [&](World& world) {
      manual_seed(world, 42);
      next_draw(world);
      const Coordinate coordinate = spec.mesh().coordinate_of(world.rank()).value();
      at::Tensor tile = at::empty(local_shape(spec, coordinate));
      fill_random(tile, spec, coordinate, Normal{}, next_draw(world));
      tiles[static_cast<std::size_t>(world.rank())] = tile;
    });
    wholes.push_back(join_tiles(tiles, spec));
    EXPECT_TRUE(same_bits(wholes.back(), wholes.front())) << ranks;
  }
  EXPECT_TRUE(same_bits(wholes.front(), filled(shape, at::kFloat, Normal{}, {42, 1})));
}

TEST(RandomFill, OtherDrawsSeedsAndElementsDiffer) {
  std::set<double> seen;
  std::size_t count = 0;
  for (std::uint64_t seed : {0, 1}) {
    for (std::uint64_t number : {0, 1}) {
      const at::Tensor values = filled({1000}, at::kDouble, Uniform{}, {seed, number});
      seen.insert(values.const_data_ptr<double>(), values.const_data_ptr<double>() + 1000);
      count += 1000;
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(RandomFill, OnlyTheTileIsWritten) {
  at::Tensor memory = at::full({6, 8}, -1.F);
  fill_random(memory.narrow(0, 1, 3).narrow(1, 2, 5), Uniform{}, kDraw);
  EXPECT_EQ((memory != -1).sum().item<std::int64_t>(), 15);
}

TEST(RandomFill, AnEmptyTileStaysAsItIsEvenOutsideOfTheMesh) {
  const DTensorSpec spec = parse_spec("f32[4] on (a=2) as [S(0)]");
  EXPECT_NO_THROW(fill_random(at::empty({0}), spec, {}, Uniform{}, kDraw));
  EXPECT_NO_THROW(fill_random(at::Tensor(), spec, {}, Uniform{}, kDraw));
  EXPECT_NO_THROW(fill_bernoulli(at::empty({0}), spec, {}, at::empty({0}), kDraw));
  EXPECT_NO_THROW(fill_random(at::empty({2}, at::kMeta), spec, {0}, Uniform{}, kDraw));
  EXPECT_THROW(fill_random(at::empty({0}), spec, {}, Normal{0, -1}, kDraw), UsageError);
}

TEST(RandomFill, ALargeTensorIsTheSameForAnyNumberOfThreadsAndRanks) {
  const at::Tensor many = filled({100'000}, at::kFloat, Uniform{});
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  EXPECT_TRUE(same_bits(filled({100'000}, at::kFloat, Uniform{}), many));
  at::set_num_threads(threads);
  const DTensorSpec spec = parse_spec("f32[100000] on (a=50) as [S(0)]");
  for (std::int64_t rank = 0; rank < 50; ++rank) {
    at::Tensor tile = at::empty({2000});
    fill_random(tile, spec, {rank}, Uniform{}, kDraw);
    EXPECT_TRUE(same_bits(tile, many.narrow(0, rank * 2000, 2000)));
  }
}

TEST(RandomFill, WhatMakesNoSenseIsRefused) {
  at::Tensor x = at::empty({3});
  const auto refused = [&](const Distribution& distribution) {
    return usage_error_of([&] { fill_random(x, distribution, kDraw); });
  };
  EXPECT_EQ(refused(Uniform{2, 1}),
            "tegula: the parameters of a distribution make no sense\n"
            "  values  Uniform(2, 1)\n"
            "  hint    from <= to, and both and to - from within the element type's range");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Distribution> senseless = {
      Uniform{0, 1e300}, Uniform{-3e38, 3e38}, Uniform{nan, 1},
      Normal{0, -1},     Normal{0, nan},       LogNormal{0, 0},
      Exponential{0},    Exponential{-1},      Cauchy{0, 0},
      Geometric{0},      Geometric{1},         Geometric{nan},
      Bernoulli{-0.1},   Bernoulli{1.1},       Bernoulli{nan},
      Integers{3, 3},    Integers{3, 2},       Integers{1 << 24 | 1, (1 << 24) + 2}};
  for (const Distribution& distribution : senseless) {
    EXPECT_NE(refused(distribution).find(to_string(distribution)), std::string::npos)
        << to_string(distribution);
  }
  x = at::empty({3}, at::kChar);
  EXPECT_NE(refused(Integers{0, 129}).find("values of the element type"), std::string::npos);
  EXPECT_NE(refused(Integers{-129, 0}).find("Integers(-129, 0)"), std::string::npos);
  EXPECT_EQ(refused(Normal{}),
            "tegula: whole numbers cannot have a continuous distribution\n"
            "  values  Normal(0, 1)\n"
            "  dtype   Char\n"
            "  hint    fill a tensor of floats");
  x = at::empty({3}, at::kComplexFloat);
  EXPECT_NE(refused(Normal{}).find("no random numbers of this element type"), std::string::npos);
  x = at::empty({1}).expand({3});
  EXPECT_NE(refused(Normal{}).find("share memory"), std::string::npos);
}

TEST(RandomFill, AMisfitIsRefused) {
  const DTensorSpec spec = parse_spec("f32[4] on (a=2) as [S(0)]");
  EXPECT_EQ(usage_error_of([&] { fill_random(at::empty({3}), spec, {0}, Normal{}, kDraw); }),
            "tegula: the tile does not fit its spec\n"
            "  tile    f32[3]\n"
            "  wanted  f32[2]\n"
            "  spec    f32[4] on (a=2) as [S(0)]\n"
            "  hint    check the tile's shape and element type");
  EXPECT_THROW(fill_random(at::empty({2}, at::kDouble), spec, {0}, Normal{}, kDraw), UsageError);
  EXPECT_THROW(fill_random(at::empty({2}), spec, {2}, Normal{}, kDraw), UsageError);
  EXPECT_NE(usage_error_of([] {
              fill_bernoulli(at::empty({3}), at::empty({2}), kDraw);
            }).find("the probabilities do not broadcast to the tile"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] {
              fill_bernoulli(at::empty({3}), at::full({3}, 1.5), kDraw);
            }).find("a probability is outside of [0, 1]"),
            std::string::npos);
}

TEST(PhiloxBatch, HoldsTheBitsOfItsElements) {
  for (std::uint64_t step : {1, 3, 1 << 30}) {
    const std::uint64_t index = (std::uint64_t{1} << 32) - 20;
    const PhiloxBatch batch(kDraw, index, step);
    for (std::int64_t i = 0; i < PhiloxBatch::kSize; ++i) {
      const std::uint64_t at = index + static_cast<std::uint64_t>(i) * step;
      EXPECT_EQ(batch[i], random_bits(kDraw.seed, at, kDraw.number));
    }
  }
}

TEST(IndexRuns, ADenseWholeIsOneRun) {
  std::vector<IndexRun> runs;
  const auto keep = [&](const IndexRun& run) { runs.push_back(run); };
  for_each_run({{{0, 3}}, {{0, 4}}, {{0, 5}}}, {3, 4, 5}, {20, 5, 1}, keep);
  EXPECT_EQ(runs, (std::vector<IndexRun>{{0, 1, 0, 1, 60}}));
}

TEST(IndexRuns, NarrowTilesAreWalkedAlongTheirLength) {
  std::vector<IndexRun> runs;
  const auto keep = [&](const IndexRun& run) { runs.push_back(run); };
  for_each_run({{{0, 100}}, {{2, 2}}}, {100, 4}, {2, 1}, keep);
  EXPECT_EQ(runs, (std::vector<IndexRun>{{2, 4, 0, 2, 100}, {3, 4, 1, 2, 100}}));
}

TEST(RandomState, BeginsAlikeOnEveryRankAndCountsDraws) {
  run_ranks(3, [](World& world) {
    EXPECT_EQ(rng_state(world), RNGState{});
    EXPECT_EQ(next_draw(world), (Draw{RNGState{}.seed, 0}));
    EXPECT_EQ(next_draw(world), (Draw{RNGState{}.seed, 1}));
    manual_seed(world, 7);
    EXPECT_EQ(next_draw(world), (Draw{7, 0}));
    EXPECT_EQ(rng_state(world), (RNGState{7, 1}));
  });
}

TEST(RandomState, SavedAndRestoredItRepeats) {
  const World world = World::alone();
  next_draw(world);
  const RNGState saved = rng_state(world);
  const at::Tensor first = filled({100}, at::kFloat, Normal{}, next_draw(world));
  const at::Tensor second = filled({100}, at::kFloat, Normal{}, next_draw(world));
  set_rng_state(world, saved);
  EXPECT_TRUE(same_bits(filled({100}, at::kFloat, Normal{}, next_draw(world)), first));
  EXPECT_TRUE(same_bits(filled({100}, at::kFloat, Normal{}, next_draw(world)), second));
  EXPECT_FALSE(same_bits(first, second));
}

TEST(RandomState, WorldsDoNotShareIt) {
  const World one = World::alone();
  const World other = World::alone();
  manual_seed(one, 1);
  EXPECT_EQ(rng_state(other), RNGState{});
}

TEST(RandomState, AGeneratorThatWasPassedMovesOn) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  at::Generator twin = at::detail::createCPUGenerator(3);
  const Draw first = draw_from(generator);
  EXPECT_EQ(first, draw_from(twin));
  EXPECT_NE(first, draw_from(generator));
  EXPECT_EQ(usage_error_of([] { draw_from(at::Generator()); }),
            "tegula: random numbers need a CPU generator\n"
            "  got     undefined\n"
            "  hint    pass a CPU generator in the same state on every rank, or none");
}

TEST(RandomState, EqualDrawsGiveEqualGenerators) {
  const auto permuted = [](const Draw& draw) {
    return at::randperm(1000, replicated_generator(draw), at::kLong);
  };
  EXPECT_TRUE(at::equal(permuted({5, 6}), permuted({5, 6})));
  EXPECT_FALSE(at::equal(permuted({5, 6}), permuted({5, 7})));
  EXPECT_FALSE(at::equal(permuted({5, 6}), permuted({6, 5})));
  // More than 32 bits of the seed count.
  EXPECT_FALSE(at::equal(permuted({5, 6}), permuted({5 + (std::uint64_t{1} << 32), 6})));
}

TEST(RandomState, AReplicatedGeneratorIsUniform) {
  // 2^18 numbers of variance 1/12: the mean has a standard deviation of 0.00056; 5 of them.
  const at::Tensor values = at::rand({1 << 18}, replicated_generator({1, 2}), at::kDouble);
  EXPECT_NEAR(values.mean().item<double>(), 0.5, 5 * 0.00057);
  EXPECT_NEAR(values.var().item<double>(), 1.0 / 12, 5 * 0.00015);
}

}  // namespace
}  // namespace tegula::inner
