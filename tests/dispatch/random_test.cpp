// The state of draws, and the law that makes random numbers distributed: tiles hold the bits of the
// whole.
#include "tegula/random/random.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/random/draw_history.h"
#include "tegula/random/index_runs.h"
#include "tegula/random/philox_batch.h"
#include "tegula/random/random_fill.h"
#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace random_test {

constexpr Draw kDraw{.seed = 20260101, .number = 5};
constexpr std::uint64_t kStep = DrawHistory::kStep;

at::Tensor filled(const Shape& shape, at::ScalarType type, const Distribution& distribution,
                  const Draw& draw = kDraw) {
  at::Tensor tensor = at::empty(shape, type);
  fill_random(tensor, distribution, draw);
  return tensor;
}

std::uint64_t default_seed() { return at::detail::getDefaultCPUGenerator().current_seed(); }

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
      next_draw(world, spec.mesh());
      const Coordinate coordinate = spec.mesh().coordinate_of(world.rank()).value();
      at::Tensor tile = at::empty(local_shape(spec, coordinate));
      fill_random(tile, spec, coordinate, Normal{}, next_draw(world, spec.mesh()));
      tiles[static_cast<std::size_t>(world.rank())] = tile;
    });
    wholes.push_back(join_tiles(tiles, spec));
    EXPECT_TRUE(same_bits(wholes.back(), wholes.front())) << ranks;
  }
  EXPECT_TRUE(same_bits(wholes.front(), filled(shape, at::kFloat, Normal{}, {42 + kStep, 0})));
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

TEST(RandomFill, DrawsThatFollowOneAnotherAreUniformAndIndependent) {
  // Of 2^16 numbers: 5 standard deviations of the mean, and of the correlation of neighbours.
  constexpr std::int64_t kCount = 1 << 16;
  at::Tensor values = at::empty({kCount}, at::kDouble);
  for (std::int64_t i = 0; i < kCount; ++i) {
    fill_random(values[i], Uniform{}, {7 + static_cast<std::uint64_t>(i) * kStep, 0});
  }
  const at::Tensor centred = (values - 0.5) * std::sqrt(12.0);
  EXPECT_NEAR(centred.mean().item<double>(), 0, 5.0 / 256);
  const at::Tensor product = centred.narrow(0, 1, kCount - 1) * centred.narrow(0, 0, kCount - 1);
  EXPECT_NEAR(product.mean().item<double>(), 0, 5.0 / 256);
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

TEST(RandomState, RankThreadsBeginWithTheSeedOfTheGeneratorAndLeaveIt) {
  at::manual_seed(5);
  run_ranks(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 3}});
    EXPECT_EQ(rng_state(world), (RNGState{5, {}}));
    EXPECT_EQ(next_draw(world, mesh), (Draw{5, 0}));
    at::manual_seed(6);  // is everybody's, so it is nobody's
    EXPECT_EQ(next_draw(world, mesh), (Draw{5 + kStep, 0}));
    manual_seed(world, 7);
    EXPECT_EQ(next_draw(world, mesh), (Draw{7, 0}));
    EXPECT_EQ(rng_state(world), (RNGState{7, {{0, 1}}}));
  });
  EXPECT_EQ(default_seed(), 6U);
}

TEST(RandomState, SavedAndRestoredItRepeats) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}, {"b", 1}});
    next_draw(world, mesh["a"]);
    const RNGState saved = rng_state(world);
    const Draw first = next_draw(world, mesh);
    const Draw second = next_draw(world, mesh["a"]);
    EXPECT_NE(first, second);
    set_rng_state(world, saved);
    EXPECT_EQ(rng_state(world), saved);
    EXPECT_EQ(next_draw(world, mesh), first);
    EXPECT_EQ(next_draw(world, mesh["a"]), second);
  });
}

// A process rank: torch's generator is its own.
struct ProcessRank : testing::Test {
  World world = World::alone();
  DeviceMesh mesh = world.mesh({{"dp", 1}, {"tp", 1}});
  at::Generator generator = at::detail::getDefaultCPUGenerator();
};

TEST_F(ProcessRank, TheSeedOfTorchIsTheSeedOfDistributedDraws) {
  at::manual_seed(3);
  const Draw first = next_draw(world, mesh);
  const Draw second = next_draw(world, mesh);
  EXPECT_EQ(first, (Draw{3, 0}));
  EXPECT_EQ(second, (Draw{3 + kStep, 0}));
  at::manual_seed(3);
  EXPECT_EQ(next_draw(world, mesh), first);
  at::manual_seed(4);
  EXPECT_EQ(next_draw(world, mesh), (Draw{4, 0}));
}

TEST_F(ProcessRank, AStateOfTheGeneratorBringsItsDrawsBack) {
  at::manual_seed(3);
  next_draw(world, mesh);
  const at::Tensor state = generator.get_state();
  const std::vector<Draw> draws{next_draw(world, mesh), next_draw(world, mesh["tp"]),
                                next_draw(world, mesh["dp"]), next_draw(world, mesh["tp"])};
  const at::Tensor later = generator.get_state();
  const Draw last = next_draw(world, mesh["tp"]);
  at::manual_seed(8);  // as in a part of the program that is forked
  next_draw(world, mesh);
  generator.set_state(state);
  EXPECT_EQ(next_draw(world, mesh), draws[0]);
  EXPECT_EQ(next_draw(world, mesh["tp"]), draws[1]);
  EXPECT_EQ(next_draw(world, mesh["dp"]), draws[2]);
  generator.set_state(later);
  EXPECT_EQ(next_draw(world, mesh["tp"]), last);
}

TEST_F(ProcessRank, AStateContinuesInAnotherWorldAsInItsOwn) {
  at::manual_seed(3);
  next_draw(world, mesh);
  const at::Tensor state = generator.get_state();
  const Draw draw = next_draw(world, mesh);
  generator.set_state(state);
  const World other = World::alone();
  EXPECT_EQ(next_draw(other, other.mesh({{"a", 1}})), draw);
}

TEST_F(ProcessRank, PlainAndDistributedDrawsLeaveEachOtherAlone) {
  const auto plain = [] { return at::cat({at::randn({5}), at::rand({3}), at::randn({700})}); };
  at::manual_seed(3);
  const at::Tensor want = plain();
  at::manual_seed(3);
  next_draw(world, mesh);
  plain();
  EXPECT_EQ(next_draw(world, mesh), (Draw{3 + kStep, 0}));

  at::manual_seed(3);
  std::vector<at::Tensor> parts{at::randn({5})};
  next_draw(world, mesh);
  parts.push_back(at::rand({3}));
  manual_seed(world, 9);
  parts.push_back(at::randn({700}));
  EXPECT_TRUE(same_bits(at::cat(parts), want));
  EXPECT_EQ(next_draw(world, mesh), (Draw{9, 0}));
}

TEST_F(ProcessRank, StateAndSeedAreThoseOfTheGenerator) {
  manual_seed(world, 11);
  EXPECT_EQ(default_seed(), 11U);
  next_draw(world, mesh);
  next_draw(world, mesh["tp"]);
  const RNGState saved = rng_state(world);
  const Draw draw = next_draw(world, mesh["tp"]);
  at::manual_seed(12);
  EXPECT_EQ(rng_state(world), (RNGState{12, {}}));
  set_rng_state(world, saved);
  EXPECT_EQ(default_seed(), 11 + 2 * kStep);
  EXPECT_EQ(next_draw(world, mesh["tp"]), draw);
}

TEST_F(ProcessRank, AGeneratorThatWasPassedMovesOn) {
  at::Generator given = at::detail::createCPUGenerator(3);
  const Draw first = next_draw(world, mesh, given);
  EXPECT_EQ(first, next_draw(world, mesh, at::detail::createCPUGenerator(3)));
  EXPECT_NE(first, next_draw(world, mesh, given));
  EXPECT_EQ(usage_error_of([&] { next_draw(world, mesh, at::Generator()); }),
            "tegula: random numbers need a CPU generator\n"
            "  got     undefined\n"
            "  hint    pass a CPU generator in the same state on every rank, or none");
}

TEST_F(ProcessRank, TheDefaultGeneratorMayBePassed) {
  at::manual_seed(3);
  EXPECT_EQ(next_draw(world, mesh, generator), (Draw{3, 0}));
  EXPECT_EQ(next_draw(world, mesh), (Draw{3 + kStep, 0}));
}

// Streams -------------------------------------------------------------------------------------

std::uint64_t stream_at(int size, int rank,
                        const std::function<DeviceMesh(const World&)>& mesh_of) {
  const World world = World::fake(size, rank);
  return next_draw(world, mesh_of(world)).number;
}

TEST(Streams, AllMeshesOfAllRanksAreOne) {
  EXPECT_EQ(stream_at(4, 1, [](const World& world) { return world.mesh({{"a", 4}}); }), 0U);
  EXPECT_EQ(stream_at(4, 1, [](const World& w) { return w.mesh({{"a", 4}}, {3, 1, 0, 2}); }), 0U);
  for (int size : {1, 4}) {
    const auto grid = [&](const World& world) {
      return world.mesh({{"a", 1}, {"b", size}, {"c", 1}});
    };
    EXPECT_EQ(stream_at(size, 0, grid), 0U);
    EXPECT_EQ(stream_at(size, 0, [&](const World& w) { return grid(w).flatten(); }), 0U);
    EXPECT_EQ(stream_at(size, 0, [&](const World& w) { return grid(w)[{"c", "b", "a"}]; }), 0U);
  }
}

TEST(Streams, ASliceIsOneInAllFibersAndForAllSizes) {
  const auto slice = [](int a, int b, int rank, const char* axis) {
    return stream_at(a * b, rank,
                     [=](const World& world) { return world.mesh({{"a", a}, {"b", b}})[axis]; });
  };
  const std::uint64_t b = slice(2, 2, 0, "b");
  EXPECT_NE(b, 0U);
  EXPECT_NE(b, slice(2, 2, 0, "a"));
  for (int rank : {1, 2, 3}) EXPECT_EQ(slice(2, 2, rank, "b"), b);
  EXPECT_EQ(slice(1, 1, 0, "b"), b);
  EXPECT_EQ(slice(3, 1, 2, "b"), b);
}

TEST(Streams, MeshesOfSomeRanksAreKnownByTheirRanks) {
  const auto part = [](std::vector<std::int64_t> ranks) {
    return [=](const World& world) { return world.mesh({{"a", 2}}, ranks); };
  };
  const std::uint64_t stream = stream_at(4, 1, part({0, 1}));
  EXPECT_NE(stream, 0U);
  EXPECT_EQ(stream_at(4, 0, part({1, 0})), stream);
  EXPECT_NE(stream_at(4, 1, part({1, 2})), stream);
}

TEST(Streams, RanksMayDrawDifferentlyOftenAndDrawTogetherAgain) {
  std::vector<std::vector<Draw>> draws(4);
  run_ranks(4, [&](World& world) {
    manual_seed(world, 5);
    const DeviceMesh mesh = world.mesh({{"stage", 2}, {"dp", 2}});
    const DeviceMesh pair = world.mesh({{"x", 2}}, {1, 2});
    std::vector<Draw>& mine = draws[static_cast<std::size_t>(world.rank())];
    mine.push_back(next_draw(world, mesh));
    for (int i = 0; i < world.rank() / 2 * 3; ++i) next_draw(world, mesh["dp"]);
    next_draw(world, pair);
    mine.push_back(next_draw(world, mesh));
    mine.push_back(next_draw(world, pair));
    if (world.rank() < 2) mine.push_back(next_draw(world, mesh["dp"]));
  });
  EXPECT_EQ(draws[0][1], (Draw{5 + kStep, 0}));
  for (const std::vector<Draw>& of_rank : draws) {
    EXPECT_EQ(of_rank[0], draws[0][0]);
    EXPECT_EQ(of_rank[1], draws[0][1]);
  }
  EXPECT_EQ(draws[0][2], Draw{});  // outside of the pair
  EXPECT_EQ(draws[1][2], draws[2][2]);
  EXPECT_EQ(draws[1][2].seed, 5 + kStep);
  EXPECT_EQ(draws[0][3], draws[1][3]);
}

// Replicated generators -----------------------------------------------------------------------

TEST(ReplicatedGenerator, EqualDrawsGiveEqualGenerators) {
  const auto permuted = [](const Draw& draw) {
    return at::randperm(1000, replicated_generator(draw), at::kLong);
  };
  EXPECT_TRUE(at::equal(permuted({5, 6}), permuted({5, 6})));
  EXPECT_FALSE(at::equal(permuted({5, 6}), permuted({5, 7})));
  EXPECT_FALSE(at::equal(permuted({5, 6}), permuted({6, 5})));
  // More than 32 bits of the seed count.
  EXPECT_FALSE(at::equal(permuted({5, 6}), permuted({5 + (std::uint64_t{1} << 32), 6})));
}

TEST(ReplicatedGenerator, IsUniform) {
  // 2^18 numbers of variance 1/12: the mean has a standard deviation of 0.00056; 5 of them.
  const at::Tensor values = at::rand({1 << 18}, replicated_generator({1, 2}), at::kDouble);
  EXPECT_NEAR(values.mean().item<double>(), 0.5, 5 * 0.00057);
  EXPECT_NEAR(values.var().item<double>(), 1.0 / 12, 5 * 0.00015);
}

}  // namespace random_test
}  // namespace tegula::inner
