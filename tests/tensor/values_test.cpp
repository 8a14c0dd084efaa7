// Values that distributed tensors are known to get wrong, one test each.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/payload/guards.h"
#include "tegula/random/random.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace values_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }

const AsPlain kPlainResults{1e-9, 4, true, true, true};

TEST(OwedReductions, ItemOfAPartialIsTheReducedValue) {
  expect_as_plain(
      {numbers({5, 3})},
      [](const Tensors& in) -> Tensors {
        return {number(in[0].sum().item<double>()), number(in[0].norm().item<double>()),
                number(in[0][2][1].item<double>()), number(in[0].mean().item().toDouble())};
      },
      kPlainResults);
}

TEST(OwedReductions, AConditionOnAPartialIsTheSameOnEveryRank) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = from_local(at::full({}, 1.0), mesh, {Partial()});
    EXPECT_EQ(x.item<float>(), 3.0f);
    EXPECT_TRUE((x > 2.5).item<bool>());
    EXPECT_TRUE(at::is_nonzero(x - 2));
    EXPECT_FALSE(at::is_nonzero(x - 3));
    EXPECT_TRUE(at::equal(x, full({}, 3, mesh, {Replicate()})));
    EXPECT_TRUE(at::allclose(x, full({}, 3, mesh, {Replicate()})));
  });
}

TEST(OwedReductions, APrintedPartialShowsTheReducedValue) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = from_local(at::full({2}, 4.0), mesh, {Partial()});
    const std::string text = to_string(x);
    EXPECT_TRUE(contains(text, "8")) << text;
    EXPECT_FALSE(contains(text, "4")) << text;
  });
}

TEST(Convolutions, ConvolutionsAreRightForEveryPlacementOfInputWeightAndBias) {
  expect_as_plain({leaf({3, 4, 9}), leaf({6, 4, 3}, 2), leaf({6}, 3)},
                  [](const Tensors& in) -> Tensors {
                    return {at::conv1d(in[0], in[1], in[2], /*stride=*/2, /*padding=*/1,
                                       /*dilation=*/2)};
                  });
  expect_as_plain({leaf({2, 4, 7, 5}), leaf({6, 2, 3, 2}, 2), leaf({6}, 3)},
                  [](const Tensors& in) -> Tensors {
                    return {at::conv2d(in[0], in[1], in[2], {2, 1}, {1, 1}, {1, 2},
                                       /*groups=*/2)};
                  });
  expect_as_plain({leaf({2, 2, 4, 5, 3}), leaf({3, 2, 2, 2, 2}, 2)},
                  [](const Tensors& in) -> Tensors { return {at::conv3d(in[0], in[1])}; });
}

TEST(Convolutions, TransposedConvolutionsAreRightForEveryPlacement) {
  expect_as_plain({leaf({2, 4, 5, 4}), leaf({4, 3, 3, 2}, 2), leaf({3}, 3)},
                  [](const Tensors& in) -> Tensors {
                    return {at::conv_transpose2d(in[0], in[1], in[2], {2, 1}, {1, 0}, {1, 0})};
                  });
}

TEST(Means, AreRightForEveryPlacementAndIntoOthers) {
  expect_as_plain({leaf({5, 3}), leaf({5, 3}, 2)}, [](const Tensors& in) -> Tensors {
    at::Tensor written = at::zeros_like(in[0].detach().sum(0));
    at::mean_out(written, in[0].detach(), {0});
    return {in[0].mean(), in[1].mean({-1}, true), in[0].mean(at::IntArrayRef({0, 1})), written};
  });
}

TEST(Means, OfNothingAreNoNumbers) {
  expect_as_plain({leaf({0, 3})}, [](const Tensors& in) -> Tensors {
    return {at::isnan(in[0].mean()), at::isnan(in[0].mean({0})), in[0].mean({1})};
  });
}

TEST(Losses, AreRightForEveryPlacementAndReduction) {
  expect_as_plain({leaf({5, 3}), leaf({5, 3}, 2)}, [](const Tensors& in) -> Tensors {
    Tensors losses;
    for (const std::int64_t reduction :
         {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
      losses.push_back(at::mse_loss(in[0], in[1], reduction));
      losses.push_back(at::smooth_l1_loss(in[0], in[1], reduction, 0.5));
      losses.push_back(at::huber_loss(in[0], in[1], reduction, 0.5));
      losses.push_back(at::soft_margin_loss(in[0], in[1].detach(), reduction));
    }
    return losses;
  });
}

TEST(Writes, AWriteThroughASliceOfACutDimLands) {
  expect_as_plain({leaf({5, 4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    x.slice(0, 0, 2).fill_(1);
    x.slice(1, 1, 4, 2).mul_(3);
    x.slice(0, 1, 5, 3).add_(in[0].slice(0, 0, 2));
    return {x};
  });
}

TEST(Writes, AWriteThroughASelectOfACutDimLands) {
  expect_as_plain({leaf({5, 4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    x[1] = 1;
    x[4].copy_(in[0][0] * 2);
    x.select(1, 3).mul_(5);
    x[2][2].fill_(7);
    return {x};
  });
}

TEST(Writes, AWriteThroughSplitChunkAndUnbindLands) {
  expect_as_plain({leaf({5, 6})},
                  [](const Tensors& in) -> Tensors {
                    const at::Tensor x = in[0].clone();
                    {
                      // libtorch refuses in-place writes to one of several views while it records
                      const at::NoGradGuard no_grad;
                      x.split(2, 0)[1].fill_(1);
                      x.chunk(3, 1)[2].mul_(2);
                      x.unbind(0)[3].zero_();
                      x.split_with_sizes({1, 4}, 0)[1].add_(1);
                      x.tensor_split(2, 1)[0].neg_();
                    }
                    return {x};
                  },
                  {1e-9, 4, true, false, false});
}

TEST(Writes, AWriteThroughAViewOfAViewLands) {
  expect_as_plain({leaf({6, 4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    x.t().slice(0, 1, 3).view({2, 6}).select(1, 4).fill_(9);
    x.view({2, 3, 4}).select(0, 1).slice(0, 0, 2).mul_(2);
    x.diagonal().add_(1);
    return {x};
  });
}

TEST(Writes, AWriteByIndexOrMaskLands) {
  expect_as_plain({leaf({5, 4}), leaf({2, 4}, 2)}, [](const Tensors& in) -> Tensors {
    using at::indexing::Slice;
    at::Tensor x = in[0].clone();
    x.index_put_({Slice(3, 5)}, in[1]);
    x.masked_fill_(x.detach() > 1, 0);
    x.index_put_({x.detach() < -1}, at::scalar_tensor(4.0, at::kDouble));
    return {x};
  });
}

TEST(Losses, CrossEntropyDividesByTheTrueDenominator) {
  const at::Tensor target = at::tensor({0, 3, -100, 2, 1, 3, 3}, at::kLong);
  for (const bool weighted : {false, true}) {
    for (const double smoothing : {0.0, 0.2}) {
      Tensors inputs{leaf({7, 4}), target};
      if (weighted) inputs.push_back(at::tensor({0.5, 2.0, 1.0, 0.1}, at::kDouble));
      expect_as_plain(inputs,
                      [&](const Tensors& in) -> Tensors {
                        return {at::cross_entropy_loss(
                                    in[0], in[1], weighted ? std::optional(in[2]) : std::nullopt,
                                    at::Reduction::Mean, -100, smoothing),
                                at::nll_loss(at::log_softmax(in[0], 1), in[1],
                                             weighted ? std::optional(in[2]) : std::nullopt,
                                             at::Reduction::Mean, -100)};
                      },
                      {1e-9, 4, false, false, true});
    }
  }
}

TEST(Means, MeansAreOverAllElementsOfUnevenShards) {
  expect_as_plain({leaf({7, 3}), leaf({7, 3}, 2)}, [](const Tensors& in) -> Tensors {
    return {in[0].mean(),
            in[0].mean(0),
            in[0].mean(-1, true),
            at::mse_loss(in[0], in[1]),
            at::smooth_l1_loss(in[0], in[1]),
            in[0].var(),
            in[0].std(0)};
  });
}

// Programs that draw: the same on meshes of 1, 2, 3 and 2x2 ranks, for any placement.
using Drawing = std::function<Tensors(const at::Tensor& input)>;

Tensors drawn(const World& world, const DeviceMesh& mesh, const Placements& placements,
              const at::Tensor& input, const Drawing& program) {
  manual_seed(world, 7);
  const at::Tensor x =
      distribute_tensor(input.detach().clone(), mesh, placements, {std::nullopt, {}})
          .set_requires_grad(input.requires_grad());
  Tensors results = program(x);
  for (at::Tensor& result : results) {
    EXPECT_TRUE(is_dtensor(result));
    if (is_dtensor(result)) result = full_tensor(result.detach());
  }
  return results;
}

void expect_same_draws(const at::Tensor& input, const Drawing& program) {
  Tensors want;
  run_impatient(1, [&](World& world) {
    want = drawn(world, world.mesh({{"a", 1}}), {Replicate()}, input, program);
  });
  for (int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      Random random(5);
      for (int draw = 0; draw < 5; ++draw) {
        const Placements placements = draw == 0
                                          ? Placements(mesh.ndim(), Shard(0))
                                          : some_placements(random, mesh, input, /*partial=*/false);
        const Tensors got = drawn(world, mesh, placements, input, program);
        for (std::size_t i = 0; i < want.size(); ++i) {
          const std::string text = difference(got[i], want[i], 0);
          EXPECT_TRUE(text.empty()) << "result " << i << " " << text << "\n"
                                    << to_string(mesh) << to_string(placements);
        }
      }
    });
  }
}

TEST(RandomNumbers, DropoutDrawsByGlobalElementIndex) {
  expect_same_draws(leaf({7, 5}), [](const at::Tensor& x) -> Tensors {
    const at::Tensor y = at::dropout(x * 1, 0.5, true);
    y.sum().backward();
    return {y, x.grad(), at::feature_dropout(x, 0.3, true), at::alpha_dropout(x, 0.3, true)};
  });
}

TEST(RandomNumbers, NoShardRepeatsTheNumbersOfAnother) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = zeros({8, 4}, mesh, {Shard(0), Shard(0)});
    x.normal_();
    const at::Tensor whole = full_tensor(x);
    for (std::int64_t a = 0; a < 8; ++a) {
      for (std::int64_t b = 0; b < a; ++b) EXPECT_FALSE(at::allclose(whole[a], whole[b]));
    }
  });
}

TEST(RandomNumbers, InPlaceDrawsAreByGlobalElementIndex) {
  expect_same_draws(numbers({7, 5}), [](const at::Tensor& x) -> Tensors {
    return {x.clone().normal_(),       x.clone().uniform_(),      x.clone().exponential_(2),
            x.clone().geometric_(0.3), x.clone().log_normal_(),   x.clone().cauchy_(),
            x.clone().bernoulli_(0.4), x.clone().random_(0, 100), at::rand_like(x),
            at::randn_like(x),         at::randint_like(x, 10),   at::bernoulli(x.sigmoid())};
  });
}

TEST(RandomNumbers, DrawsThatAreNoElementwiseOnesAreTheSameOnAllMeshes) {
  expect_same_draws(numbers({7, 5}).abs(), [](const at::Tensor& x) -> Tensors {
    return {at::multinomial(x, 3), at::multinomial(x, 9, true), at::normal(x, x), at::poisson(x),
            at::rrelu(x - 1, 0.1, 0.3, true)};
  });
}

TEST(RandomNumbers, AGeneratorOfTheUserIsHonoured) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const auto draw = [&](std::uint64_t seed) {
      at::Generator generator = inner::replicated_generator({seed, 0});
      return full_tensor(zeros({7}, mesh, {Shard(0)}).normal_(0, 1, generator));
    };
    EXPECT_TRUE(at::equal(draw(1), draw(1)));
    EXPECT_FALSE(at::equal(draw(1), draw(2)));
  });
}

TEST(OwedReductions, AMapThatDoesNotIncreaseMeetsTheReducedMaximum) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x =
        from_local(at::full({2}, world.rank() == 0 ? 0.2 : 0.1), mesh, {Partial(ReduceOp::Max)});
    EXPECT_TRUE(at::allclose(full_tensor(at::threshold(x, 0.15, 5)), at::full({2}, 0.2)));
    EXPECT_TRUE(at::allclose(full_tensor(x.neg()), at::full({2}, -0.2)));
    EXPECT_TRUE(at::allclose(full_tensor(x.mul(-2)), at::full({2}, -0.4)));
    EXPECT_TRUE(at::allclose(full_tensor(x.add(1)), at::full({2}, 1.2)));
  });
}

TEST(OwedReductions, NansumMeetsTheReducedSum) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor mine = at::tensor({world.rank() == 0 ? kNaN : 3.0, 2.0}, at::kDouble);
    const at::Tensor x = from_local(mine, mesh, {Partial()});
    EXPECT_EQ(at::nansum(x).item<double>(), 4.0);
    EXPECT_EQ(full_tensor(at::nan_to_num(x, 9.0))[0].item<double>(), 9.0);
  });
}

TEST(OwedReductions, WholeNumbersStayWholeWhenReplicasMeetPartials) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor p = from_local(at::ones({2}, at::kLong), mesh, {Partial()});
    const at::Tensor r = ones({2}, mesh, {Replicate()}, at::kLong);
    const at::Tensor sum = r + p;
    EXPECT_EQ(sum.scalar_type(), at::kLong);
    EXPECT_TRUE(at::equal(full_tensor(sum), at::full({2}, 4, at::kLong)));
    const at::Tensor average = from_local(at::full({2}, 3, at::kLong), mesh, {Partial()}) - p;
    EXPECT_EQ(average.scalar_type(), at::kLong);
    EXPECT_TRUE(at::equal(full_tensor(average), at::full({2}, 6, at::kLong)));
  });
}

TEST(OutTensors, AnOutTensorKeepsItsPlacement) {
  const at::Tensor plain = numbers({5, 3});
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)});
    const auto check = [&](const Shape& shape, const Placements& placements, const auto& op,
                           const at::Tensor& want) {
      at::Tensor out = empty(shape, mesh, placements, at::kDouble);
      const at::Tensor returned = op(out);
      EXPECT_TRUE(returned.is_same(out));
      EXPECT_EQ(to_string(placements_of(out)), to_string(placements));
      EXPECT_EQ(difference(full_tensor(out), want), "");
    };
    for (const Placements& placements :
         {Placements{Replicate()}, Placements{Shard(0)}, Placements{Partial()}}) {
      check(
          {3}, placements, [&](at::Tensor& out) { return at::mean_out(out, x, 0); }, plain.mean(0));
      check(
          {3}, placements, [&](at::Tensor& out) { return at::amax_out(out, x, 0); }, plain.amax(0));
      check(
          {5, 3}, placements, [&](at::Tensor& out) { return at::add_out(out, x, x); },
          plain + plain);
      check(
          {3, 3}, placements, [&](at::Tensor& out) { return at::mm_out(out, x.t(), x); },
          plain.t().mm(plain));
    }
  });
}

TEST(Placing, UnevenLocalsMakeOneTensorThatAllRanksAgreeOn) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const std::int64_t rows[] = {2, 0, 3};
    const std::int64_t first[] = {0, 2, 2};
    const at::Tensor local =
        at::arange(first[world.rank()], first[world.rank()] + rows[world.rank()], at::kDouble);
    const at::Tensor x = from_local(local, mesh, {Shard(0)});
    EXPECT_EQ(x.sizes(), at::IntArrayRef({5}));
    EXPECT_EQ(difference(full_tensor(x), at::arange(5, at::kDouble)), "");
    EXPECT_EQ(difference(full_tensor(x.cumsum(0) * 2), at::arange(5, at::kDouble).cumsum(0) * 2),
              "");
  });
}

TEST(Placing, AWrongNumberOfPlacementsIsRefused) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = at::ones({2});
    EXPECT_TRUE(
        contains(error_of([&] { from_local(x, mesh, {}); }), "one placement per mesh axis"));
    EXPECT_TRUE(contains(error_of([&] { from_local(x, mesh, {Replicate(), Replicate()}); }),
                         "one placement per mesh axis"));
    EXPECT_TRUE(contains(error_of([&] { distribute_tensor(x, mesh, {}); }), "tegula:"));
  });
}

TEST(OwedReductions, MapsThatAreNotLinearMeetTheReducedSum) {
  expect_as_plain({leaf({4, 3}), leaf({4, 3}, 2)},
                  [](const Tensors& in) -> Tensors {
                    return {in[0].clamp(-0.5, 0.5),
                            in[0].abs(),
                            in[0].square(),
                            in[0] > in[1],
                            in[0].relu(),
                            in[0].pow(3),
                            in[0].sign(),
                            at::maximum(in[0], in[1]),
                            in[0].exp(),
                            in[0].sigmoid(),
                            in[0].round(),
                            in[0] == in[0],
                            in[0] * in[1],
                            in[0] / in[1],
                            in[0].softmax(-1)};
                  },
                  {1e-9, 10, true, false, true});
}

TEST(OwedReductions, AScalarIsAddedToASumOnce) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = from_local(at::ones({2}), mesh, {Partial(), Partial()});
    EXPECT_EQ(difference(full_tensor(x + 1), at::full({2}, 5.0f)), "");
    EXPECT_EQ(difference(full_tensor(1 - x), at::full({2}, -3.0f)), "");
    EXPECT_EQ(difference(full_tensor(x.add_(1)), at::full({2}, 5.0f)), "");
    EXPECT_EQ(difference(full_tensor(x + at::scalar_tensor(2.0)), at::full({2}, 7.0f)), "");
    EXPECT_EQ(difference(full_tensor(x.fill_(3)), at::full({2}, 3.0f)), "");
  });
}

TEST(Placing, ToLocalAndBackKeepsGradients) {
  expect_as_plain({leaf({5, 3})},
                  [](const Tensors& in) -> Tensors {
                    const at::Tensor x = in[0] * 2;
                    if (!is_dtensor(x)) return {x.sin()};
                    const at::Tensor again = from_local(to_local(x), mesh_of(x), placements_of(x));
                    return {again.sin()};
                  },
                  {1e-9, 8, false, false, true});
}

TEST(Placing, EveryShardOrderHoldsTheSlicesThatItSays) {
  const at::Tensor plain = numbers({7, 3});
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    for (const ShardOrder& order : {ShardOrder{{0, {0, 1}}}, ShardOrder{{0, {1, 0}}}}) {
      const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0), Shard(0)}, {0, order});
      const Coordinate at = *mesh.coordinate_of(world.rank());
      EXPECT_TRUE(at::equal(to_local(x), cut_tile(plain, spec_of(x), at)));
      EXPECT_TRUE(at::equal(full_tensor(x), plain));
      EXPECT_TRUE(at::equal(full_tensor(x.slice(0, 1, 6)), plain.slice(0, 1, 6)));
      const at::Tensor again = redistribute(x, {Shard(0), Shard(1)});
      EXPECT_TRUE(at::equal(full_tensor(again), plain));
    }
  });
}

TEST(Replicas, ReplicasAreBitwiseEqualAfterChainedReductions) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    at::Generator generator =
        inner::replicated_generator({static_cast<std::uint64_t>(world.rank()), 1});
    const at::Tensor mine = at::randn({1000}, generator) * 1e3;
    const at::Tensor x = from_local(mine, mesh, {Partial(), Partial()});
    const at::Tensor whole = full_tensor(x);
    const at::Tensor all = world.group().all_gather(whole.unsqueeze(0), 0);
    for (std::int64_t rank = 1; rank < 4; ++rank) EXPECT_TRUE(at::equal(all[rank], all[0]));
    const at::Tensor sum = full_tensor(x.sum() + x.square().mean());
    const at::Tensor sums = world.group().all_gather(sum.unsqueeze(0), 0);
    for (std::int64_t rank = 1; rank < 4; ++rank) EXPECT_TRUE(at::equal(sums[rank], sums[0]));
  });
}

TEST(EmptyShards, MaximaAreRightWhereAShardIsEmpty) {
  for (const std::int64_t rows : {1, 2}) {
    expect_as_plain({leaf({rows, 3})}, [](const Tensors& in) -> Tensors {
      const auto [values, indices] = in[0].max(0);
      const auto [low, where] = in[0].min(1);
      return {in[0].max(),       in[0].min(), in[0].argmax(), in[0].argmin(0), values,
              indices,           low,         where,          in[0].amax(0),   in[0].amin(),
              in[0].prod(),      in[0].all(), in[0].any(),    in[0].std(1),    in[0].median(),
              in[0].logsumexp(0)};
    });
  }
}

TEST(EmptyShards, AnEmptyTensorIsAnsweredAsLibtorchDoes) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = zeros({0, 3}, mesh, {Shard(0)});
    EXPECT_TRUE(contains(error_of([&] { x.max(); }), "max"));
    EXPECT_EQ(difference(full_tensor(x.sum(0)), at::zeros({3})), "");
    EXPECT_EQ(x.sum().item<float>(), 0.0f);
  });
}

TEST(Embeddings, TwoRowWiseEmbeddingsOfOneShapeLiveSideBySide) {
  const at::Tensor index = at::tensor({4, 0, 6, 4, 2}, at::kLong);
  expect_as_plain({leaf({7, 3}), leaf({7, 3}, 2), index},
                  [](const Tensors& in) -> Tensors {
                    const at::Tensor a = at::embedding(in[0], in[2]);
                    const at::Tensor b = at::embedding(in[1], in[2]);
                    return {a + b, a * b, b.sum(0)};
                  },
                  {1e-9, 8, false, false, true});
}

TEST(OwedReductions, AMaskPartialCanBeReducedTwice) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor mine = at::full({3}, world.rank() == 0 ? 2.0 : 0.0);
    const at::Tensor x = from_local(mine, mesh, {MaskPartial(10)});
    EXPECT_EQ(difference(full_tensor(x), at::full({3}, 2.0f)), "");
    EXPECT_EQ(difference(full_tensor(x), at::full({3}, 2.0f)), "");
    EXPECT_EQ(difference(full_tensor(redistribute(x, {Shard(0)})), at::full({3}, 2.0f)), "");
    EXPECT_EQ(difference(full_tensor(x + x), at::full({3}, 4.0f)), "");
  });
}

TEST(Guards, GuardsEndWithTheirScopeEvenAfterAnException) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4}, mesh, {Shard(0)});
    EXPECT_FALSE(ImplicitReplication::is_on());
    try {
      const ImplicitReplication outer;
      {
        const ImplicitReplication inner;
        EXPECT_EQ(difference(full_tensor(x + at::ones({4})), at::full({4}, 2.0f)), "");
      }
      EXPECT_TRUE(ImplicitReplication::is_on());
      EXPECT_EQ(difference(full_tensor(x + at::ones({4})), at::full({4}, 2.0f)), "");
      throw std::runtime_error("in the middle");
    } catch (const std::runtime_error&) {
    }
    EXPECT_FALSE(ImplicitReplication::is_on());
    EXPECT_TRUE(contains(error_of([&] { x + at::ones({900, 4}); }), "ImplicitReplication"));
    try {
      const BuildDistributed guard(mesh, [](at::IntArrayRef) { return Placements{Shard(0)}; });
      EXPECT_TRUE(is_dtensor(at::zeros({4})));
      throw std::runtime_error("in the middle");
    } catch (const std::runtime_error&) {
    }
    EXPECT_FALSE(is_dtensor(at::zeros({4})));
  });
}

}  // namespace values_test
}  // namespace tegula
