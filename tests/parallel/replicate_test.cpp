// Data parallel training gives what one rank gives, whatever samples the ranks have.
#include "tegula/parallel/replicate.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <memory>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/parallelize_module.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace replicate_test {

namespace nn = torch::nn;

// A layer that is used twice, one that is not used, and a buffer.
struct Network : nn::Module {
  Network()
      : in(register_module("in", nn::Linear(4, 5))),
        shared(register_module("shared", nn::Linear(5, 5))),
        unused(register_module("unused", nn::Linear(2, 2))),
        scale(register_buffer("scale", at::ones({5}))) {
    register_module("shared_again", shared);
    to(at::kDouble);
    std::uint64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), ++seed));
  }
  at::Tensor loss(const at::Tensor& x) {
    return shared(at::tanh(shared(at::tanh(in(x))))).mul(scale).square().mean();
  }

  nn::Linear in, shared, unused;
  at::Tensor scale;
};

using Place = std::function<at::Tensor(const at::Tensor&)>;

// Steps of SGD, each of `parts` micro-batches; the parameters at the end.
template <class BeforePart>
std::vector<at::Tensor> trained(Network& network, std::int64_t samples, int parts,
                                const Place& place, const BeforePart& before) {
  torch::optim::SGD optimizer(network.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::uint64_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < parts; ++part) {
      const auto guard = before(part);
      const std::uint64_t seed = 100 * step + static_cast<std::uint64_t>(part);
      (network.loss(place(numbers({samples, 4}, 50 + seed))) / parts).backward();
    }
    clip_grad_norm_(network.parameters(), 0.5);
    optimizer.step();
  }
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& one : network.parameters()) parameters.push_back(one.detach());
  return parameters;
}

std::unique_ptr<GradientPolicyGuard> no_guard(int) { return nullptr; }

TEST(Replicate, TrainsAsOneRankOnAnyNumberOfSamples) {
  for (const std::int64_t samples : {6, 5, 2, 1}) {  // with 4 ranks the last have few or none
    for (const int parts : {1, 3}) {
      Network plain;
      const auto want =
          trained(plain, samples, parts, [](const at::Tensor& x) { return x; }, no_guard);
      for (const int ranks : {1, 3, 4}) {
        run_impatient(ranks, [&](World& world) {
          const DeviceMesh mesh = world.mesh({{"dp", ranks}});
          Network ours;
          replicate(ours, mesh);
          const auto got = trained(
              ours, samples, parts, [&](const at::Tensor& x) { return shard_batch(x, mesh); },
              [&](int part) {
                return part + 1 < parts ? std::make_unique<GradientPolicyGuard>(no_sync(mesh))
                                        : nullptr;
              });
          for (std::size_t k = 0; k < want.size(); ++k) {
            EXPECT_EQ(difference(full_tensor(got[k]), want[k]), "") << samples << " " << k;
          }
        });
      }
    }
  }
}

TEST(Replicate, OverOneAxisAfterASplitOverAnother) {
  Network plain;
  plain.loss(numbers({6, 4}, 9)).backward();
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    Network ours;
    parallelize_module(ours, mesh["tp"], {{"in", Colwise()}}, kSameOnAllRanks);
    replicate(ours, mesh["dp"]);
    ours.loss(shard_batch(numbers({6, 4}, 9), mesh)).backward();
    EXPECT_EQ(to_string(placements_of(ours.in->weight)), "[R, S(0)]");
    EXPECT_EQ(difference(full_tensor(ours.in->weight.grad()), plain.in->weight.grad()), "");
    EXPECT_EQ(difference(full_tensor(ours.shared->bias.grad()), plain.shared->bias.grad()), "");
  });
}

TEST(Replicate, HeldMicroBatchesSendNoGradients) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    replicate(ours, mesh);
    const GradientPolicyGuard guard(no_sync(mesh));
    const at::Tensor loss = ours.loss(shard_batch(numbers({6, 4}, 9), mesh));
    const CommLog log(world);
    loss.backward();
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(Replicate, NamesAParameterThatDiffers) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 3}});
    Network ours;
    if (world.rank() == 2) {
      const at::NoGradGuard no_grad;
      ours.shared->bias.add_(1e-12);
    }
    const std::string error = error_of([&] { replicate(ours, mesh); });
    EXPECT_TRUE(contains(error, "a parameter or buffer differs between ranks")) << error;
    EXPECT_TRUE(contains(error, "\"shared.bias\"") && contains(error, "0 and 2")) << error;
    EXPECT_FALSE(is_dtensor(ours.in->weight));
    nn::Sequential deeper(nn::Linear(2, 2));
    if (world.rank() == 1) deeper->push_back(nn::Linear(2, 2));
    EXPECT_TRUE(contains(error_of([&] { replicate(*deeper, mesh); }),
                         "a module has different parameters on different ranks"));
  });
}

TEST(Replicate, RefusesAParameterThatIsCutAlongTheAxis) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    parallelize_module(ours, mesh, {{"in", Colwise()}}, kSameOnAllRanks);
    EXPECT_TRUE(
        contains(error_of([&] { replicate(ours, mesh); }), "it is placed along the axis already"));
  });
}

}  // namespace replicate_test
}  // namespace tegula
