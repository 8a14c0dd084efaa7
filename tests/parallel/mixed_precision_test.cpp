// Halves in forward passes, and loss scaling on whose verdict all ranks agree.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <limits>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/autocast.h"
#include "tegula/parallel/checkpoint.h"
#include "tegula/parallel/grad_scaler.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tests/parallel/placed_parameters.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace mixed_precision_test {

namespace nn = torch::nn;
namespace optim = torch::optim;

struct Network : nn::Module {
  Network()
      : up(register_module("up", nn::Linear(8, 14))),
        down(register_module("down", nn::Linear(14, 5))) {
    std::uint64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(numbers(parameter.sizes(), ++seed) / 4);
    }
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& target) {
    const at::Tensor y = down(at::gelu(up(x)));
    dtype = y.scalar_type();
    return at::cross_entropy_loss(y, target);
  }
  nn::Linear up, down;
  at::ScalarType dtype = at::kFloat;
};

std::vector<at::Tensor> values_of(const Network& network) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& one : network.parameters()) values.push_back(one.detach().clone());
  return values;
}

using Place = std::function<at::Tensor(const at::Tensor&)>;

// The parameters after some steps.
std::vector<at::Tensor> trained(Network& network, const Place& place) {
  optim::SGD optimizer(network.parameters(), optim::SGDOptions(0.5).momentum(0.9));
  GradScaler scaler({.scale = 1024});
  for (std::uint64_t step = 1; step <= 5; ++step) {
    const at::Tensor x = place(numbers({7, 8}, step).to(at::kFloat));
    const at::Tensor target = place(at::arange(7).remainder(5));
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const Autocast half(at::kBFloat16);
      loss = network.loss(x, target);
    }
    EXPECT_EQ(network.dtype, at::kBFloat16);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    scaler.scaled(loss).backward();
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
  }
  for (const at::Tensor& one : network.parameters()) {
    EXPECT_EQ(one.scalar_type(), at::kFloat);
    EXPECT_EQ(one.grad().scalar_type(), at::kFloat);
  }
  return values_of(network);
}

void expect_trains_as_one_rank() {
  for (const bool is_tensor_parallel : {false, true}) {
    run_impatient(2, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{is_tensor_parallel ? "tp" : "dp", 2}});
      Network plain, network;
      const std::vector<at::Tensor> start = values_of(plain);
      const std::vector<at::Tensor> wanted = trained(plain, [](const at::Tensor& x) { return x; });
      if (is_tensor_parallel) {
        parallelize_module(network, mesh, {{"up", Colwise()}, {"down", Rowwise()}});
      } else {
        replicate(network, mesh);
      }
      const std::vector<at::Tensor> got = trained(network, [&](const at::Tensor& x) {
        return is_tensor_parallel ? distribute_tensor(x, mesh, {Replicate()})
                                  : shard_batch(x, mesh);
      });
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        const double moved = (wanted[k] - start[k]).abs().max().item<double>();
        EXPECT_LT((full_tensor(got[k]) - wanted[k]).abs().max().item<double>(), 0.05 * moved);
      }
    });
  }
}

TEST(Autocast, TrainsAsOneRankDoes) { expect_trains_as_one_rank(); }

// Casts of leaves communicate then, and ranks are threads here.
TEST(Autocast, TrainsAsOneRankDoesWhereReplicasAreCompared) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  expect_trains_as_one_rank();
}

// Not as halves, and nothing is gathered for the conversion.
TEST(Autocast, GradientsAreReducedOnceInTheDtypeOfTheirParameters) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  on_a_grid([](World& world, const DeviceMesh& mesh) {
    const at::Tensor weight = distribute_tensor(
        leaf({64, 32}).detach().to(at::kFloat).requires_grad_(), mesh, {Replicate(), Shard(0)});
    const at::Tensor x = shard_batch(numbers({6, 32}).to(at::kFloat), mesh);
    at::Tensor loss;
    {
      const Autocast half(at::kBFloat16);
      loss = at::linear(x, weight).to(at::kFloat).square().sum();
    }
    const CommLog log(world);
    loss.backward();
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(to_string(placements_of(weight.grad())), "[R, S(0)]");
    ASSERT_EQ(log.size(), 1U) << log.to_string();
    EXPECT_EQ(log.entries()[0].op, "gradient of a leaf");
    EXPECT_EQ(log.bytes(), 32 * 32 * 4) << log.to_string();
  });
}

TEST(Autocast, ConversionsOfWhatIsOwedAreThoseOfTheTotal) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    for (const auto& [from, to] :
         {std::pair(at::kBFloat16, at::kFloat), std::pair(at::kFloat, at::kBFloat16)}) {
      const at::Tensor part =
          numbers({4, 3}, static_cast<std::uint64_t>(world.rank()) + 1).to(from);
      const at::Tensor owed = from_local(part, mesh, {Partial()});
      const at::Tensor got =
          owed.to(at::TensorOptions(to).device(owed.device()).layout(at::kStrided));
      const bool widens = to == at::kFloat;
      EXPECT_EQ(to_string(placements_of(got)), widens ? "[P(sum)]" : "[R]");
      const at::Tensor total =
          numbers({4, 3}, 1).to(from).to(at::kFloat) + numbers({4, 3}, 2).to(from).to(at::kFloat);
      EXPECT_EQ(difference(full_tensor(got), total.to(to), 1e-6), "");
    }
  });
}

TEST(Autocast, OfACheckpointComputesAgainWithTheWeightsOfTheStep) {
  const auto trained_weight =
      [](const std::function<at::Tensor(const std::function<at::Tensor(const at::Tensor&)>&,
                                        const at::Tensor&)>& call) {
        at::Tensor weight = numbers({4, 4}).to(at::kFloat).requires_grad_();
        for (std::uint64_t step = 1; step <= 4; ++step) {
          at::Tensor loss;
          {
            const Autocast half(at::kBFloat16);
            const auto layer = [&](const at::Tensor& x) {
              return at::mm(at::mm(x, weight), weight);
            };
            loss = call(layer, numbers({3, 4}, step).to(at::kFloat)).to(at::kFloat).square().mean();
          }
          loss.backward();
          const at::NoGradGuard no_grad;
          weight.sub_(weight.grad(), 0.1);
          weight.mutable_grad() = at::Tensor();
        }
        return weight.detach();
      };
  const at::Tensor wanted =
      trained_weight([](const auto& layer, const at::Tensor& x) { return layer(x); });
  const at::Tensor got =
      trained_weight([](const auto& layer, const at::Tensor& x) { return checkpoint(layer, x); });
  EXPECT_TRUE(at::equal(got, wanted));
}

TEST(Autocast, IsTurnedOffForAWhileInside) {
  const at::Tensor x = at::ones({2, 2});
  {
    const Autocast half(at::kBFloat16);
    EXPECT_EQ(at::mm(x, x).scalar_type(), at::kBFloat16);
    {
      const Autocast full(std::nullopt);
      EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
      const Autocast other(at::kHalf);
      EXPECT_EQ(at::mm(x, x).scalar_type(), at::kHalf);
    }
    EXPECT_EQ(at::mm(x, x).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
}

TEST(Autocast, RefusesWhatIsNoHalf) {
  const std::string text = error_of([] { Autocast guard(at::kDouble); });
  EXPECT_TRUE(contains(text, "autocast computes in halves only")) << text;
  EXPECT_EQ(at::mm(at::ones({1, 1}), at::ones({1, 1})).scalar_type(), at::kFloat);
}

// --- GradScaler

TEST(GradScaler, UnscalesGradientsOnAnyMesh) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  on_a_grid([](World& world, const DeviceMesh& mesh) {
    PlacedParameters parameters(mesh);
    optim::SGD ours(parameters.ours, 0.1), plain(parameters.plain, 0.1);
    GradScaler scaler({.scale = 8});
    parameters.set_gradients(1);
    for (const at::Tensor& one : parameters.ours) one.grad().mul_(8);
    const CommLog log(world);
    EXPECT_TRUE(scaler.unscale_(ours));
    EXPECT_EQ(log.size(), 1U) << log.to_string();
    EXPECT_LE(log.bytes(), 8) << log.to_string();
    EXPECT_TRUE(scaler.step(ours));
    plain.step();
    parameters.expect_equal();
  });
}

// Whatever one rank alone has found, in whichever parameter.
TEST(GradScaler, LeavesAStepOutEverywhereIfOneRankFoundAnInfinity) {
  for (std::size_t which = 0; which < 9; ++which) {
    on_a_grid([&](World& world, const DeviceMesh& mesh) {
      PlacedParameters parameters(mesh);
      optim::SGD ours(parameters.ours, 0.1);
      GradScaler scaler({.scale = 8});
      parameters.set_gradients(1);
      const at::Tensor gradient = parameters.ours[which].grad();
      const at::Tensor tile = is_dtensor(gradient) ? to_local(gradient) : gradient;
      const double bad = which % 2 == 0 ? std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
      if (world.rank() == 3 && tile.numel() > 0) tile.view({-1})[-1] = bad;
      const bool is_bad =
          world.group()
              .all_reduce(at::full({}, tile.numel() > 0 ? world.rank() : 0), ReduceOp::Max)
              .item<double>() == 3;
      EXPECT_EQ(scaler.step(ours), !is_bad);
      scaler.update();
      EXPECT_EQ(scaler.scale(), is_bad ? 4 : 8);
      if (is_bad) parameters.expect_equal();
    });
  }
}

TEST(GradScaler, GrowsAndShrinksItsScale) {
  at::Tensor x = leaf({2});
  optim::SGD optimizer({x}, 0.1);
  GradScaler scaler({.scale = 8, .interval = 2});
  const auto step = [&](double gradient) {
    x.mutable_grad() = at::full({2}, gradient, at::kDouble);
    const bool is_stepped = scaler.step(optimizer);
    scaler.update();
    return is_stepped;
  };
  EXPECT_TRUE(step(1));
  EXPECT_EQ(scaler.state(), (GradScalerState{8, 1}));
  EXPECT_TRUE(step(1));
  EXPECT_EQ(scaler.state(), (GradScalerState{16, 0}));
  EXPECT_TRUE(step(1));
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(scaler.state(), (GradScalerState{8, 0}));
  scaler.restore({32, 1});
  EXPECT_TRUE(step(1));
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_EQ(scaler.scaled(at::ones({})).item<double>(), 64);
}

TEST(GradScaler, RefusesCallsThatCannotBeRight) {
  at::Tensor x = leaf({2});
  optim::SGD optimizer({x}, 0.1);
  GradScaler scaler;
  EXPECT_TRUE(contains(error_of([&] { scaler.update(); }), "before a step"));
  scaler.step(optimizer);
  EXPECT_TRUE(contains(error_of([&] { scaler.step(optimizer); }), "two steps"));
  EXPECT_TRUE(contains(error_of([&] { scaler.unscale_(optimizer); }), "unscaled twice"));
  for (const GradScalerOptions& wrong :
       {GradScalerOptions{.scale = 0}, GradScalerOptions{.growth = 0.5},
        GradScalerOptions{.backoff = 2}, GradScalerOptions{.interval = 0}}) {
    EXPECT_TRUE(contains(error_of([&] { GradScaler{wrong}; }), "cannot work with this option"));
  }
}

}  // namespace mixed_precision_test
}  // namespace tegula
