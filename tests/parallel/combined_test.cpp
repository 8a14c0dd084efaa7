// What goes wrong elsewhere where parallelisms meet, each with the thread that reports it.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace combined_test {

// Named weights and what is made of them and some samples.
struct Network : torch::nn::Module {
  using Loss = std::function<at::Tensor(Network&, const at::Tensor& x)>;
  explicit Network(Loss given) : loss_of(std::move(given)) {}
  void add(const std::string& name, const at::Tensor& weight) { register_parameter(name, weight); }
  at::Tensor operator[](const std::string& name) { return named_parameters()[name]; }
  at::Tensor loss(const at::Tensor& x) { return loss_of(*this, x); }
  Loss loss_of;
};

using Build = std::function<std::shared_ptr<Network>()>;
using Distribute = std::function<void(Network&, const DeviceMesh&)>;
using Place = std::function<at::Tensor(const at::Tensor&)>;

std::vector<at::Tensor> trained(Network& network, const Place& place) {
  std::vector<at::Tensor> trainable;
  for (const at::Tensor& one : network.parameters()) {
    if (one.requires_grad()) trainable.push_back(one);
  }
  torch::optim::SGD optimizer(trainable, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::uint64_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    network.loss(place(numbers({5, 6}, 50 + step))).backward();
    clip_grad_norm_(trainable, 0.5);
    optimizer.step();
  }
  std::vector<at::Tensor> values;
  for (const at::Tensor& one : network.parameters()) values.push_back(one.detach());
  return values;
}

void expect_as_one_rank(const std::vector<MeshAxis>& axes, const Build& build,
                        const Distribute& distribute, double tolerance = 1e-9) {
  const std::vector<at::Tensor> want = trained(*build(), [](const at::Tensor& x) { return x; });
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= static_cast<int>(axis.size);
  run_impatient(ranks, [&](World& world) {
    const DeviceMesh mesh = world.mesh(axes);
    const std::shared_ptr<Network> network = build();
    distribute(*network, mesh);
    const std::vector<at::Tensor> got = trained(*network, [&](const at::Tensor& x) {
      Placements placements;
      for (const MeshAxis& axis : axes) {
        const bool is_data = axis.name == "dp" || axis.name == "fsdp";
        placements.push_back(is_data ? Placement(Shard(0)) : Placement(Replicate()));
      }
      return distribute_tensor(x, mesh, placements, kSameOnAllRanks);
    });
    for (std::size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(difference(full_tensor(got[k]), want[k], tolerance), "") << k;
    }
  });
}

// A table that is also the head: 2.13 refuses it in two groups, and did not update the last rank's
// part (pytorch#176076).
TEST(Combined, ATiedWeightIsCutAndUpdatedOnEveryRank) {
  const Build build = [] {
    auto network = std::make_shared<Network>([](Network& self, const at::Tensor& x) {
      const at::Tensor words = (x.detach().select(1, 0) * 100).abs().to(at::kLong).remainder(7);
      return at::linear(at::tanh(at::embedding(self["table"], words)), self["head"])
          .square()
          .mean();
    });
    const at::Tensor table = numbers({7, 6}, 1);
    network->add("table", table);
    network->add("head", table);
    return network;
  };
  expect_as_one_rank({{"fsdp", 3}}, build, [](Network& network, const DeviceMesh& mesh) {
    fully_shard(network, mesh);
    EXPECT_EQ(network["table"].unsafeGetTensorImpl(), network["head"].unsafeGetTensorImpl());
  });
}

Build two_layers() {
  return [] {
    auto network = std::make_shared<Network>([](Network& self, const at::Tensor& x) {
      return at::linear(at::tanh(at::linear(x, self["up"])), self["down"]).square().mean();
    });
    network->add("up", numbers({7, 6}, 1));
    network->add("down", numbers({5, 7}, 2));
    return network;
  };
}

// Meshes of more than four axes, or with more than two that cut the model, are refused there
// (pytorch#147179).
TEST(Combined, FourAxes) {
  expect_as_one_rank(
      {{"dp", 2}, {"fsdp", 2}, {"tp", 2}, {"columns", 2}}, two_layers(),
      [](Network& network, const DeviceMesh& mesh) {
        parallelize_module(network, mesh["tp"], {{"up", Colwise()}, {"down", Rowwise()}},
                           kSameOnAllRanks);
        parallelize_module(network, mesh["columns"], {{"up", Rowwise()}, {"down", Colwise()}},
                           kSameOnAllRanks);
        fully_shard(network, mesh["fsdp"]);
        replicate(network, mesh["dp"]);
      });
}

// Dims other than the first have to divide there (pytorch#137342).
TEST(Combined, FullyShardedAlongADimThatDoesNotDivide) {
  const Placements columns{Shard(1)};
  expect_as_one_rank({{"fsdp", 4}}, two_layers(), [&](Network& network, const DeviceMesh& mesh) {
    fully_shard(network, mesh, {columns, columns, columns});
  });
}

// A dtype for reductions made others skip the sum over tp (pytorch#190626). Under autocast the
// ranks' parts are bf16, and are added up as floats over both axes.
TEST(Combined, GradientsOfAutocastAreReducedInFloatsOverAllAxes) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    Network network({});
    network.add("weight", at::full({1, 4}, 1.0, at::kFloat));
    replicate(network, mesh["dp"]);
    // parts 256, 1, 1, 1: sums of bf16 would drop the ones
    const at::Tensor whole = at::tensor({256.0, 1.0, 1.0, 1.0}).to(at::kFloat).view({4, 1});
    const at::Tensor x = distribute_tensor(whole.expand({4, 4}).contiguous(), mesh,
                                           {Shard(0), Shard(0)}, kSameOnAllRanks);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor y = at::linear(x, network["weight"]);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    const CommLog log(world);
    y.sum().backward();
    EXPECT_FALSE(contains(log.to_string(), "bf16")) << log.to_string();
    EXPECT_TRUE(at::equal(full_tensor(network["weight"].grad()), at::full({1, 4}, 259.0f)));
  });
}

// Norms over several meshes were those of one of them, or too small by the root of the number of
// shards (Megatron-LM#5916).
TEST(Combined, OneNormOverParametersOnDifferentMeshes) {
  run_impatient(4, [](World& world) {
    const DeviceMesh dense = world.mesh({{"dp", 2}, {"tp", 2}}), experts = world.mesh({{"ep", 4}});
    std::vector<at::Tensor> ours;
    double squares = 0;
    const auto add = [&](const DeviceMesh& mesh, const Placements& placements, std::uint64_t seed) {
      const at::Tensor grad = numbers({6, 5}, seed);
      squares += grad.square().sum().item<double>();
      ours.push_back(distribute_tensor(numbers({6, 5}, seed), mesh, placements).requires_grad_());
      ours.back().mutable_grad() = distribute_tensor(grad, mesh, placements);
    };
    add(dense, {Replicate(), Shard(0)}, 1);
    add(dense, {Shard(0), Shard(0)}, 2);
    add(experts, {Shard(0)}, 3);
    add(experts, {Replicate()}, 4);
    EXPECT_NEAR(grad_norm(ours), std::sqrt(squares), 1e-12);
  });
}

// Groups of one dtype, in which all or none require grad (LlamaFactory#10157): a frozen base in
// bf16 with small trained matrices beside it.
TEST(Combined, AFrozenBaseOfAnotherDtypeInOneBlock) {
  const Build build = [] {
    auto network = std::make_shared<Network>([](Network& self, const at::Tensor& x) {
      const at::Tensor base = at::linear(x.to(at::kBFloat16), self["base"]).to(at::kDouble);
      return (base + at::linear(at::linear(x, self["a"]), self["b"])).square().mean();
    });
    network->add("base", numbers({7, 6}, 1).to(at::kBFloat16));
    network->add("a", numbers({2, 6}, 2));
    network->add("b", numbers({7, 2}, 3));
    (*network)["base"].requires_grad_(false);
    return network;
  };
  expect_as_one_rank({{"fsdp", 3}}, build,
                     [](Network& network, const DeviceMesh& mesh) { fully_shard(network, mesh); });
}

// A layer that only some samples want: ranks without such samples hang others (DeepSpeed#4966).
TEST(Combined, ALayerThatIsUsedBecauseOfOneSample) {
  const Build build = [] {
    auto network = std::make_shared<Network>([](Network& self, const at::Tensor& x) {
      const at::Tensor y = at::tanh(at::linear(x, self["always"]));
      const bool is_wanted = x.detach().max().item<double>() > 0.9;
      return (is_wanted ? at::linear(y, self["sometimes"]) : y).square().mean();
    });
    network->add("always", numbers({6, 6}, 1));
    network->add("sometimes", numbers({6, 6}, 2));
    return network;
  };
  expect_as_one_rank({{"fsdp", 4}}, build,
                     [](Network& network, const DeviceMesh& mesh) { fully_shard(network, mesh); });
}

// Heads that the ranks do not divide (vLLM#11797).
TEST(Combined, ThreeHeadsOnTwoRanks) {
  const Build build = [] {
    auto network = std::make_shared<Network>([](Network& self, const at::Tensor& x) {
      const auto parts = at::linear(x.unsqueeze(1).expand({-1, 4, -1}), self["qkv"]).chunk(3, -1);
      const auto heads = [](const at::Tensor& part) {
        return part.reshape({part.size(0), 4, 3, 2}).transpose(1, 2);
      };
      const at::Tensor mixed =
          at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]));
      return at::linear(mixed.transpose(1, 2).reshape({-1, 4, 6}), self["out"]).square().mean();
    });
    network->add("qkv", numbers({18, 6}, 1));
    network->add("out", numbers({6, 6}, 2));
    return network;
  };
  expect_as_one_rank({{"dp", 2}, {"tp", 2}}, build, [](Network& network, const DeviceMesh& mesh) {
    parallelize_module(network, mesh["tp"], {{"qkv", PackedColwise(3)}, {"out", Rowwise()}},
                       kSameOnAllRanks);
    replicate(network, mesh["dp"]);
  });
}

}  // namespace combined_test
}  // namespace tegula
