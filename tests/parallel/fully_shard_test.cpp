// A fully sharded model trains as one rank does, gathers weights when they are used, and nothing
// else.
#include "tegula/parallel/fully_shard.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include <map>
#include <memory>
#include <set>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/adamw.h"
#include "tegula/parallel/checkpoint.h"
#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tegula/payload/gathered_forms.h"
#include "tegula/tensor/module.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace fully_shard_test {

namespace nn = torch::nn;

// A table that is also the last layer, a norm, layers of several widths, a frozen one, a scalar.
struct Network : nn::Module {
  Network()
      : table(register_module("table", nn::Embedding(11, 6))),
        up(register_module("up", nn::Linear(6, 7))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({7})))),
        down(register_module("down", nn::Linear(7, 6))),
        frozen(register_module("frozen", nn::Linear(6, 6))),
        scale(register_parameter("scale", at::ones({}))) {
    to(at::kDouble);
    std::uint64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& one : parameters()) one.copy_(numbers(one.sizes(), ++seed) * 0.3);
    for (at::Tensor& one : frozen->parameters()) one.set_requires_grad(false);
  }
  at::Tensor loss(const at::Tensor& tokens) {
    const at::Tensor x = table(tokens);
    const at::Tensor h = x + down(at::tanh(norm(up(x)))) * scale;
    return at::linear(frozen(h), table->weight).square().mean();
  }

  nn::Embedding table;
  nn::Linear up;
  nn::LayerNorm norm;
  nn::Linear down, frozen;
  at::Tensor scale;
};

at::Tensor tokens(std::int64_t samples, std::int64_t seed) {
  return (at::arange(samples * 3) * 7 + seed).remainder(11).view({samples, 3});
}

using Place = std::function<at::Tensor(const at::Tensor&)>;
using Guard = std::unique_ptr<GradientPolicyGuard>;

std::vector<at::Tensor> trained(Network& network, std::int64_t samples, int parts,
                                const Place& place, const std::function<Guard(int)>& before = {}) {
  torch::optim::AdamW optimizer(network.parameters(), torch::optim::AdamWOptions(0.05));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < parts; ++part) {
      const Guard guard = before ? before(part) : nullptr;
      (network.loss(place(tokens(samples, 10 * step + part))) / parts).backward();
    }
    clip_grad_norm_(network.parameters(), 0.05);
    optimizer.step();
  }
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& one : network.parameters()) parameters.push_back(one.detach());
  return parameters;
}

at::Tensor as_it_is(const at::Tensor& x) { return x; }

void expect_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want,
                 const std::string& what) {
  for (std::size_t k = 0; k < want.size(); ++k) {
    EXPECT_EQ(difference(full_tensor(got[k]), want[k]), "") << what << ", parameter " << k;
  }
}

const std::map<std::string, ShardedRoles>& all_roles() {
  static const std::map<std::string, ShardedRoles> roles = {
      {"replicated", {{Replicate()}, {Replicate()}, {Replicate()}}},
      {"zero 1", zero_1()},
      {"zero 2", zero_2()},
      {"zero 3", zero_3()},
      {"last dim", {{Shard(-1)}, {Shard(-1)}, {Shard(-1)}}},
  };
  return roles;
}

TEST(FullyShard, TrainsAsOneRankByAnyRoles) {
  for (const std::int64_t samples : {6, 3, 1}) {  // with 4 ranks the last have few or none
    Network plain;
    const auto want = trained(plain, samples, 2, as_it_is);
    for (const auto& [name, roles] : all_roles()) {
      for (const int ranks : {1, 2, 4}) {
        run_impatient(ranks, [&, &said = roles, &what = name](World& world) {
          const DeviceMesh mesh = world.mesh({{"dp", ranks}});
          Network ours;
          fully_shard(ours, mesh, said);
          const auto got =
              trained(ours, samples, 2, [&](const at::Tensor& x) { return shard_batch(x, mesh); });
          expect_same(got, want, what);
        });
      }
    }
  }
}

TEST(FullyShard, TrainsAsOneRankByAnyOptions) {
  using Options = FullyShardOptions;
  const std::map<std::string, Options> all = {
      {"owned", {.layout = Options::Layout::Owned}},
      {"multiples of 4", {.multiple = 4}},
      {"no room", {.most_bytes = 0}},
      {"now", {.reduction = GradientReduction::Now}},
      {"next one gathered meanwhile", {.prefetch = Options::Prefetch::Next}},
      {"little room, next one", {.most_bytes = 500, .prefetch = Options::Prefetch::Next}},
  };
  Network plain;
  const auto want = trained(plain, 5, 2, as_it_is);
  for (const auto& [name, options] : all) {
    for (const int ranks : {2, 3}) {
      run_impatient(ranks, [&, &said = options, &what = name](World& world) {
        const DeviceMesh mesh = world.mesh({{"dp", ranks}});
        Network ours;
        fully_shard(ours, mesh, zero_3(), said);
        const auto got = trained(
            ours, 5, 2, [&](const at::Tensor& x) { return shard_batch(x, mesh); },
            [&](int part) {  // the first part is held
              return part == 0 ? std::make_unique<GradientPolicyGuard>(no_sync(mesh)) : nullptr;
            });
        expect_same(got, want, what);
      });
    }
  }
}

TEST(FullyShard, MixesWithOtherAxes) {
  Network plain;
  const auto want = trained(plain, 5, 1, as_it_is);
  const ParallelPlan plan = {{"up", Colwise()}, {"down", Rowwise()}, {"table", VocabularyCut()}};
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const Place place = [&](const at::Tensor& x) { return shard_batch(x, mesh); };
    {
      Network ours;
      parallelize_module(ours, mesh["tp"], plan, kSameOnAllRanks);
      fully_shard(ours, mesh["dp"]);
      EXPECT_EQ(to_string(spec_of(ours.up->weight)),
                "f64[7, 6] on (dp=2, tp=2) as [S(0)[1], S(0)[0]]");
      expect_same(trained(ours, 5, 1, place), want, "tensor parallel first");
    }
    {
      Network ours;
      fully_shard(ours, mesh["dp"], zero_2());
      parallelize_module(ours, mesh["tp"], {{"down", Rowwise()}}, kSameOnAllRanks);
      expect_same(trained(ours, 5, 1, place), want, "tensor parallel last");
    }
    {
      Network ours;
      parallelize_module(ours, mesh["tp"], plan, kSameOnAllRanks);
      fully_shard(ours, mesh["dp"], zero_3(), {.layout = FullyShardOptions::Layout::Owned});
      expect_same(trained(ours, 5, 1, place), want, "owned");
    }
    const DeviceMesh two = world.mesh({{"replicas", 2}, {"shards", 2}});
    Network ours;
    fully_shard(ours, two, hybrid());
    EXPECT_EQ(to_string(placements_of(ours.up->weight)), "[R, S(0)]");
    const auto by_both = [&](const at::Tensor& x) {
      return distribute_tensor(x, two, {Shard(0), Shard(0)}, kSameOnAllRanks);
    };
    expect_same(trained(ours, 5, 1, by_both), want, "hybrid");
  });
}

// How often each op gathers.
std::map<std::string, int> gathers(const CommLog& log) {
  std::map<std::string, int> counts;
  for (const CommEntry& entry : log.entries()) {
    if (entry.kind == CommKind::AllGather) ++counts[entry.op];
  }
  return counts;
}

// State on another placement than what is computed with, for any optimizer: its state is made like
// the parameter, which lies where its state is to be and is whole while it is used.
TEST(FullyShard, StateIsCutWhileWeightsAndGradientsAreWhole) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    fully_shard(ours, mesh, zero_1());
    torch::optim::AdamW optimizer(ours.parameters(), torch::optim::AdamWOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = ours.loss(shard_batch(tokens(4, step), mesh));
      const CommLog log(world);
      loss.backward();
      for (const CommEntry& entry : log.entries()) {
        EXPECT_EQ(entry.kind, CommKind::AllReduce) << log.to_string();
      }
      const std::size_t before = log.size();
      optimizer.step();
      EXPECT_EQ(log.size(), before) << log.to_string();
    }
    const at::Tensor& weight = ours.up->weight;
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *optimizer.state().at(weight.unsafeGetTensorImpl()));
    EXPECT_EQ(to_string(placements_of(state.exp_avg())), "[S(0)]");
    EXPECT_EQ(to_local(state.exp_avg_sq()).size(0), world.rank() == 0 ? 4 : 3);
  });
}

TEST(FullyShard, StepsClippingAndAveragesGatherNothing) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    fully_shard(ours, mesh);
    std::vector<at::Tensor> averages;
    for (const at::Tensor& one : ours.parameters()) averages.push_back(one.detach().clone());
    torch::optim::AdamW optimizer(ours.parameters(), torch::optim::AdamWOptions(0.1));
    ours.loss(shard_batch(tokens(4, 1), mesh)).backward();
    EXPECT_EQ(to_string(placements_of(ours.up->weight.grad())), "[S(0)]");
    const CommLog log(world);
    clip_grad_norm_(ours.parameters(), 0.1);
    EXPECT_EQ(log.size(), 1u) << log.to_string();
    EXPECT_LE(log.bytes(), 8);
    optimizer.step();
    const at::NoGradGuard no_grad;
    for (std::size_t k = 0; k < averages.size(); ++k) {
      averages[k].lerp_(ours.parameters()[k], 0.1);
      averages[k].mul_(0.9).add_(ours.parameters()[k], 0.1);
    }
    EXPECT_EQ(log.size(), 1u) << log.to_string();
    // what was written is forgotten: nothing is left but the frozen layer
    EXPECT_LE(world.part<inner::GatheredForms>().bytes(), (6 * 6 + 6) * 8);
  });
}

// A weight that is used at every step of a sequence, once transposed.
struct Recurrent : nn::Module {
  Recurrent() : weight(register_parameter("weight", numbers({5, 5}, 1) * 0.1)) {}
  at::Tensor loss(at::Tensor x) {
    for (int step = 0; step < 6; ++step) x = at::tanh(at::linear(x, weight));
    return at::mm(x, weight).square().mean();
  }
  at::Tensor weight;
};

TEST(FullyShard, AWeightThatIsUsedOftenIsGatheredOnce) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Recurrent ours;
    fully_shard(ours, mesh);
    const at::Tensor x = shard_batch(numbers({5, 5}, 2), mesh);  // placed as the weight is
    const CommLog log(world);
    const at::Tensor loss = ours.loss(x);
    EXPECT_EQ(gathers(log).size(), 1u) << log.to_string();
    loss.backward();
    int all = 0;
    for (const auto& [op, count] : gathers(log)) all += count;
    EXPECT_EQ(all, 1) << log.to_string();
  });
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    fully_shard(ours, mesh, zero_3(), {.most_bytes = 0});
    const at::Tensor x = shard_batch(tokens(4, 1), mesh);
    ours.loss(x).backward();
    const CommLog log(world);
    const at::Tensor loss = ours.loss(x);
    const auto forward = log.size();
    loss.backward();
    EXPECT_GT(log.size(), forward) << "backward gathers again\n" << log.to_string();
    ours.zero_grad();
    const KeepGathered keep;
    ours.loss(x);
    CommLog kept(world);
    ours.loss(x);
    EXPECT_TRUE(gathers(kept).empty()) << kept.to_string();
  });
}

TEST(FullyShard, WhatAnAverageReadStaysGathered) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Recurrent ours;
    fully_shard(ours, mesh);
    const at::NoGradGuard no_grad;
    const KeepGathered keep;
    const at::Tensor average = ours.weight.detach().clone();
    const std::vector<at::Tensor> averages{average}, weights{ours.weight};
    const at::Tensor x = shard_batch(numbers({5, 5}, 2), mesh);
    ours.loss(x);
    const CommLog log(world);
    for (int step = 0; step < 2; ++step) {  // a new kind of call, then a known one
      average.lerp_(ours.weight, 0.1);
      average.add_(ours.weight, 0.1);
      at::_foreach_add_(averages, weights, 0.1);
    }
    ours.loss(x);
    EXPECT_TRUE(gathers(log).empty()) << log.to_string();
    ours.weight.add_(average);
    ours.loss(x);
    EXPECT_EQ(gathers(log).size(), 1u) << log.to_string();
  });
}

TEST(FullyShard, SeesEveryWriteToAWeight) {
  Recurrent plain;
  const at::Tensor x = numbers({4, 5}, 2);
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Recurrent ours;
    fully_shard(ours, mesh);
    const at::NoGradGuard no_grad;
    const KeepGathered keep;
    at::Tensor whole = numbers({5, 5}, 1) * 0.1;
    const auto expect_right = [&](const char* what) {
      Recurrent alone;
      alone.weight.copy_(whole);
      const double got = full_tensor(ours.loss(shard_batch(x, mesh))).item<double>();
      EXPECT_NEAR(got, alone.loss(x).item<double>(), 1e-12) << what;
    };
    expect_right("at first");
    ours.weight.add_(0.01);
    whole.add_(0.01);
    expect_right("in place");
    ours.weight.data().mul_(1.5);
    whole.mul_(1.5);
    expect_right("through data()");
    ours.weight.detach().view({-1}).sub_(0.02);
    whole.sub_(0.02);
    expect_right("through a view");
    ours.weight.t().select(0, 1).fill_(0.3);
    whole.t().select(0, 1).fill_(0.3);
    expect_right("through a row of the transpose");
    to_local(ours.weight).mul_(0.5);
    whole.mul_(0.5);
    expect_right("through the tile");
    auto* data = to_local(ours.weight).mutable_data_ptr<double>();
    for (std::int64_t k = 0; k < to_local(ours.weight).numel(); ++k) data[k] += 0.25;
    whole.add_(0.25);
    expect_right("through a pointer");
    at::_foreach_mul_({ours.weight}, 0.9);
    whole.mul_(0.9);
    expect_right("in a list");
    at::mul_out(ours.weight, ours.weight, at::scalar_tensor(1.1, at::kDouble));
    whole.mul_(1.1);
    expect_right("as out=");
  });
}

struct One : nn::Module {
  explicit One(const at::Tensor& value) : weight(register_parameter("weight", value)) {}
  at::Tensor weight;
};

TEST(FullyShard, PartsOfAWeightAreGatheredToo) {
  const at::Tensor weight = numbers({9, 4}, 1), x = numbers({5, 4}, 2);
  const auto loss_of = [](const at::Tensor& w, const at::Tensor& in) {
    const std::vector<at::Tensor> parts = w.chunk(3, 0);
    const at::Tensor mixed = at::linear(in, parts[0]) * at::linear(in, parts[1]);
    return (mixed + at::linear(in, parts[2]) + at::mm(in, w.narrow(0, 2, 3).t())).square().mean();
  };
  at::Tensor plain = weight.clone().requires_grad_();
  loss_of(plain, x).backward();
  for (const int ranks : {2, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"dp", ranks}});
      One ours(weight.clone());
      fully_shard(ours, mesh);
      loss_of(ours.weight, shard_batch(x, mesh)).backward();
      EXPECT_EQ(difference(full_tensor(ours.weight.grad()), plain.grad()), "");
    });
  }
}

TEST(FullyShard, TakesComplexWeightsAndTheirParts) {
  const at::Tensor weight = at::complex(numbers({4, 4}, 1), numbers({4, 4}, 2));
  const at::Tensor x = numbers({4, 4}, 3);
  const auto loss_of = [](const at::Tensor& w, const at::Tensor& in) {
    const at::Tensor mixed = at::mm(in.to(at::kComplexDouble), w);
    const at::Tensor parts = at::mm(in, at::real(w)) - at::mm(in, at::imag(w));
    const at::Tensor back = at::mm(mixed, w.t().conj());
    return (at::view_as_real(back).square().sum() + parts.square().sum() +
            at::mm(in, at::real(w.narrow(1, 0, 1).expand({4, 4}))).sum());
  };
  at::Tensor plain = weight.clone().requires_grad_();
  at::Tensor plain_x = x.clone().requires_grad_();
  loss_of(plain, plain_x).backward();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    One ours(weight.clone());
    fully_shard(ours, mesh);
    at::Tensor cut = shard_batch(x, mesh).requires_grad_();
    loss_of(ours.weight, cut).backward();
    EXPECT_EQ(difference(full_tensor(ours.weight.grad()), plain.grad()), "");
    EXPECT_EQ(difference(full_tensor(cut.grad()), plain_x.grad()), "");
  });
}

TEST(FullyShard, StepsThatWriteTilesAreSeenByRanksWithoutAny) {
  for (const auto layout : {FullyShardOptions::Layout::Owned, FullyShardOptions::Layout::Even}) {
    const auto train = [](Recurrent& network, const Place& place) {
      AdamW optimizer(network.parameters(), torch::optim::AdamWOptions(0.05));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        network.loss(place(numbers({4, 5}, 2))).backward();
        optimizer.step();
      }
      return network.weight.detach();
    };
    Recurrent plain;
    const at::Tensor want = train(plain, as_it_is);
    run_impatient(4, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"dp", 4}});
      Recurrent ours;
      fully_shard(ours, mesh, zero_2(), {.layout = layout});
      const at::Tensor got = train(ours, [&](const at::Tensor& x) { return shard_batch(x, mesh); });
      EXPECT_EQ(difference(full_tensor(got), want), "");
    });
  }
}

TEST(FullyShard, SeesWritesThroughAViewThatWasThereBefore) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    One ours(numbers({4, 4}, 1));
    distribute_module(ours, mesh, {{"weight", {Shard(0)}}}, kSameOnAllRanks);
    const at::Tensor before = ours.weight.detach();
    fully_shard(ours, mesh, zero_2());
    const at::NoGradGuard no_grad;
    const at::Tensor x = shard_batch(numbers({4, 4}, 2), mesh);
    at::mm(x, ours.weight);
    before.zero_();
    const at::Tensor want = at::mm(full_tensor(x), full_tensor(ours.weight));
    EXPECT_EQ(difference(full_tensor(at::mm(x, ours.weight)), want), "");
  });
}

TEST(FullyShard, CastsOfWeightsThatStayGatheredAreLetGo) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    One ours(numbers({16, 16}, 1).to(at::kFloat));
    fully_shard(ours, mesh, zero_2(), {.most_bytes = 16 * 16 * 2});
    const at::NoGradGuard no_grad;
    const at::Tensor x = shard_batch(numbers({4, 16}, 2).to(at::kBFloat16), mesh);
    for (int step = 0; step < 5; ++step) at::mm(x, ours.weight.to(at::kBFloat16));
    EXPECT_EQ(world.part<inner::GatheredForms>().bytes(), 16 * 16 * 2);
  });
}

TEST(FullyShard, RefusesPlainGradientsThatDiffer) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    One ours(numbers({4, 4}, 1));
    ours.weight.mutable_grad() = at::full({4, 4}, world.rank(), at::kDouble);
    const std::string error = error_of([&] { fully_shard(ours, mesh); });
    EXPECT_TRUE(contains(error, "differs between ranks")) << error;
    EXPECT_TRUE(contains(error, "weight.grad")) << error;
  });
}

TEST(FullyShard, KeepsNoMoreThanItsRoom) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    nn::Sequential layers;
    for (int k = 0; k < 6; ++k) {
      nn::Linear layer(nn::LinearOptions(16, 16).bias(false));
      layer->weight.set_data(at::eye(16));
      layers->push_back(layer);
    }
    fully_shard(*layers, mesh, zero_3(), {.most_bytes = 2 * 16 * 16 * 4});
    const at::Tensor x = shard_batch(at::ones({4, 16}), mesh);
    layers->forward(x).sum().backward();
    EXPECT_EQ(world.part<inner::GatheredForms>().bytes(), 2 * 16 * 16 * 4);
  });
}

TEST(FullyShard, GathersWhatACastMadeOfAWeight) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    nn::Linear layer(nn::LinearOptions(64, 64).bias(false));
    const at::NoGradGuard no_grad;
    layer->weight.copy_(numbers({64, 64}, 3));
    fully_shard(*layer, mesh);
    const at::Tensor x = shard_batch(numbers({4, 64}, 2).to(at::kBFloat16), mesh);
    const CommLog log(world);
    at::linear(x, layer->weight.to(at::kBFloat16));
    ASSERT_EQ(log.size(), 1u) << log.to_string();
    EXPECT_EQ(log.bytes(), 32 * 64 * 2) << log.to_string();
  });
}

TEST(FullyShard, GradientsTravelInTheWire) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    nn::Linear layer(nn::LinearOptions(64, 64).bias(false));
    {
      const at::NoGradGuard no_grad;
      layer->weight.copy_(numbers({64, 64}, 3));
    }
    fully_shard(*layer, mesh, zero_3(), {.wire = at::kBFloat16});
    const at::Tensor loss = layer(shard_batch(numbers({4, 64}, 2).to(at::kFloat), mesh)).sum();
    const CommLog log(world);
    loss.backward();
    std::int64_t reduced = 0;
    for (const CommEntry& entry : log.entries()) {
      if (entry.op == "gradient of a leaf") reduced += entry.bytes;
    }
    EXPECT_EQ(reduced, 64 * 64 * 2) << log.to_string();
    EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
  });
}

TEST(FullyShard, OwnedParametersAreBalanced) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 3}});
    Network ours;
    fully_shard(ours, mesh, zero_3(), {.layout = FullyShardOptions::Layout::Owned});
    std::int64_t mine = 0, all = 0;
    for (const at::Tensor& one : ours.parameters()) {
      if (one.dim() == 0) continue;
      const std::int64_t here = to_local(one).numel();
      EXPECT_TRUE(here == 0 || here == one.numel());
      mine += here;
      all += one.numel();
    }
    EXPECT_GT(mine, all / 3 - 20);
    EXPECT_LT(mine, all / 3 + 20);
  });
}

// Layers whose operators have decompositions, buffers or several weights.
struct Images : nn::Module {
  Images()
      : conv(register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 5, 3).padding(1)))),
        norm(register_module("norm", nn::BatchNorm2d(5))),
        lstm(register_module("lstm", nn::LSTM(nn::LSTMOptions(5, 4).batch_first(true)))),
        out(register_module("out", nn::Linear(4, 3))) {
    to(at::kDouble);
    std::uint64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& one : parameters()) one.copy_(numbers(one.sizes(), ++seed) * 0.3);
  }
  at::Tensor loss(const at::Tensor& x) {
    const at::Tensor seen = at::relu(norm(conv(x)));
    const at::Tensor rows = seen.mean(3).transpose(1, 2);
    return at::cross_entropy_loss(out(std::get<0>(lstm->forward(rows))).select(1, -1),
                                  at::arange(x.size(0)).remainder(3));
  }
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::LSTM lstm;
  nn::Linear out;
};

TEST(FullyShard, TakesConvolutionsNormsAndRecurrentLayers) {
  Images plain;
  const at::Tensor x = numbers({5, 2, 6, 6}, 7);
  plain.loss(x).backward();
  for (const int ranks : {2, 3}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"dp", ranks}});
      Images ours;
      fully_shard(ours, mesh);
      ours.loss(shard_batch(x, mesh)).backward();
      const auto want = plain.named_parameters();
      for (const auto& item : ours.named_parameters()) {
        EXPECT_EQ(to_string(placements_of(item.value().grad())), "[S(0)]") << item.key();
        EXPECT_EQ(difference(full_tensor(item.value().grad()), want[item.key()].grad()), "")
            << item.key();
      }
      EXPECT_EQ(difference(full_tensor(ours.norm->running_var), plain.norm->running_var), "");
    });
  }
}

TEST(FullyShard, GradientsOfGradientsAreRight) {
  Recurrent plain;
  const at::Tensor x = numbers({4, 5}, 2);
  const auto penalty = [](Recurrent& network, const at::Tensor& in) {
    const at::Tensor loss = network.loss(in);
    const at::Tensor grad = torch::autograd::grad({loss}, {network.weight}, {}, true, true)[0];
    return loss + grad.square().sum();
  };
  penalty(plain, x).backward();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Recurrent ours;
    fully_shard(ours, mesh);
    penalty(ours, shard_batch(x, mesh)).backward();
    EXPECT_EQ(difference(full_tensor(ours.weight.grad()), plain.weight.grad()), "");
  });
}

TEST(FullyShard, RefusesRolesThatAreNone) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    const auto error_by = [&](const ShardedRoles& roles, const FullyShardOptions& options = {}) {
      Network ours;
      const std::string error = error_of([&] { fully_shard(ours, mesh, roles, options); });
      EXPECT_FALSE(is_dtensor(ours.up->weight));
      return error;
    };
    EXPECT_TRUE(contains(error_by(hybrid()), "a role needs one placement per axis of the mesh"));
    EXPECT_TRUE(contains(error_by({{Shard(1)}, {Shard(0)}, {Shard(0)}}),
                         "the parameters of a role are cut otherwise than the state"));
    EXPECT_TRUE(contains(error_by({{Partial()}, {Partial()}, {Partial()}}),
                         "the state of a role is neither replicated nor cut evenly"));
    EXPECT_TRUE(contains(error_by(zero_3(), {.multiple = 0}), "is out of range"));
    Network ours;
    distribute_module(ours, mesh, {{"up.weight", {Shard(1)}}}, kSameOnAllRanks);
    EXPECT_TRUE(contains(error_of([&] { fully_shard(ours, mesh); }),
                         "a parameter is cut along the axis already, otherwise than asked"));
  });
}

TEST(FullyShard, ModulesBuiltInPiecesStayInPieces) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    std::unique_ptr<BuildDistributed> build = std::make_unique<BuildDistributed>(
        mesh, [](at::IntArrayRef) { return Placements{Shard(0)}; });
    nn::Linear layer(6, 9);
    nn::Linear deeper(9, 5);
    build.reset();
    fully_shard(*layer, mesh);
    fully_shard(*deeper, mesh);
    EXPECT_EQ(to_string(placements_of(layer->weight)), "[S(0)]");
    const at::Tensor x = at::ones({3, 6});
    const at::Tensor got = deeper(layer(shard_batch(x, mesh)));
    const at::Tensor want =
        at::linear(at::linear(x, full_tensor(layer->weight), full_tensor(layer->bias)),
                   full_tensor(deeper->weight), full_tensor(deeper->bias));
    EXPECT_EQ(difference(full_tensor(got).detach(), want.detach(), 1e-6), "");
  });
}

TEST(FullyShard, WorksInCheckpointsAndTwice) {
  Network plain;
  plain.loss(tokens(4, 3)).backward();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    fully_shard(ours, mesh);
    fully_shard(ours, mesh);  // says the same again
    const at::Tensor x = shard_batch(tokens(4, 3), mesh);
    checkpoint([&](const at::Tensor& in) { return ours.loss(in); }, x).backward();
    EXPECT_EQ(difference(full_tensor(ours.table->weight.grad()), plain.table->weight.grad()), "");
    EXPECT_EQ(difference(full_tensor(ours.up->bias.grad()), plain.up->bias.grad()), "");
  });
}

}  // namespace fully_shard_test
}  // namespace tegula
