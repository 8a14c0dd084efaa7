// What memory_report predicts is what an allocator counts.
#include "tegula/parallel/memory_report.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace {

// Bytes that malloc has given out: everything is taken from it, but results of collectives of a
// megabyte or more.
std::int64_t live() {
  const auto now = mallinfo2();
  return static_cast<std::int64_t>(now.uordblks + now.hblkhd);
}
bool malloc_counts() { return live() > 0; }  // a sanitizer's does not

// Weights that are much larger than activations; one is used twice, one is frozen. The sizes of
// their tiles are just below powers of two, to which memory for results of collectives is rounded.
struct Network : torch::nn::Module {
  Network() {
    const auto weight = [](std::int64_t rows, std::int64_t columns) {
      return at::full({rows, columns}, 0.01);
    };
    up = register_parameter("up", weight(252, 256));
    down = register_parameter("down", weight(256, 252));
    frozen = register_parameter("frozen", weight(252, 256), /*requires_grad=*/false);
    scale = register_buffer("scale", at::ones({60'000}));
  }
  at::Tensor loss(const at::Tensor& x) const {
    const at::Tensor y = at::linear(at::tanh(at::linear(x, up)), down);
    return at::linear(at::linear(y, frozen), down).square().mean();
  }
  at::Tensor up, down, frozen, scale;
};
constexpr std::int64_t kWeight = 252 * 256 * 4, kFrozen = kWeight;  // bytes

using Distribute = std::function<void(Network&, const DeviceMesh&)>;
using Optimize =
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

std::unique_ptr<torch::optim::Optimizer> adamw(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::AdamW>(parameters);
}
std::unique_ptr<torch::optim::Optimizer> momentum(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

// Bytes of all ranks that live, when all are here.
std::int64_t live_in(const World& world) {
  world.group().barrier();
  const std::int64_t bytes = live();
  world.group().barrier();
  return bytes;
}

void expect_near(std::int64_t counted, std::int64_t predicted, const std::string& kind) {
  EXPECT_NEAR(static_cast<double>(counted), static_cast<double>(predicted),
              0.05 * static_cast<double>(predicted) + 20'000)
      << kind;
}

MemoryBytes sum_of(const MemoryReport& report) {
  MemoryBytes all;
  for (const MemoryBytes& one : report.ranks) {
    all.parameters += one.parameters;
    all.gradients += one.gradients;
    all.state += one.state;
    all.gathered += one.gathered;
    all.buffers += one.buffers;
  }
  return all;
}

// Each rank has a sample or two, so that activations hardly count.
void expect_as_counted(const Distribute& distribute, const Optimize& optimize) {
  if (!malloc_counts()) GTEST_SKIP() << "malloc does not count";
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const at::Tensor x = shard_batch(at::ones({4, 256}), mesh);
    const std::int64_t before = live_in(world);
    Network network;
    distribute(network, mesh);
    const auto optimizer = optimize({network.up, network.down});
    const MemoryBytes predicted = sum_of(memory_report(network, *optimizer));

    const std::int64_t placed = live_in(world);
    expect_near(placed - before, predicted.parameters + predicted.buffers, "parameters, buffers");
    network.scale.set_data(distribute_tensor(at::ones({1}), mesh, {Replicate(), Replicate()}));
    const std::int64_t without_buffers = live_in(world);
    expect_near(placed - without_buffers, predicted.buffers, "buffers");

    {
      const at::NoGradGuard no_grad;
      network.loss(x);
    }
    const std::int64_t gathered = live_in(world);
    expect_near(gathered - without_buffers, predicted.gathered, "gathered");
    network.loss(x).backward();
    const std::int64_t with_gradients = live_in(world);
    expect_near(with_gradients - gathered, predicted.gradients, "gradients");
    optimizer->step();
    expect_near(live_in(world) - with_gradients, predicted.state, "state");
  });
}

TEST(MemoryReport, OfReplicas) {
  expect_as_counted(
      [](Network& network, const DeviceMesh& mesh) { replicate(network, mesh["dp"]); }, adamw);
}

TEST(MemoryReport, OfLayersThatAreCut) {
  expect_as_counted(
      [](Network& network, const DeviceMesh& mesh) {
        parallelize_module(network, mesh["tp"], {{"up", Colwise()}, {"down", Rowwise()}},
                           kSameOnAllRanks);
        replicate(network, mesh["dp"]);
      },
      momentum);
}

TEST(MemoryReport, OfEveryLevelOfZero) {
  for (const ShardedRoles& roles : {zero_1(), zero_2(), zero_3()}) {
    expect_as_counted(
        [&](Network& network, const DeviceMesh& mesh) { fully_shard(network, mesh["dp"], roles); },
        adamw);
  }
}

TEST(MemoryReport, OfCutLayersFullySharded) {
  expect_as_counted(
      [](Network& network, const DeviceMesh& mesh) {
        parallelize_module(network, mesh["tp"], {{"up", Colwise()}, {"down", Rowwise()}},
                           kSameOnAllRanks);
        fully_shard(network, mesh["dp"]);
      },
      adamw);
}

// One at a time: what is let go serves the next.
TEST(MemoryReport, OfGatheredParametersThatAreLetGo) {
  if (!malloc_counts()) GTEST_SKIP() << "malloc does not count";
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network network;
    FullyShardOptions options;
    options.most_bytes = 0;
    fully_shard(network, mesh, zero_3(), options);
    const MemoryBytes predicted =
        sum_of(memory_report(network, *adamw({network.up, network.down})));
    EXPECT_EQ(predicted.gathered, 2 * kWeight);
    const at::Tensor x = shard_batch(at::ones({2, 256}), mesh);
    const std::int64_t before = live_in(world);
    const at::NoGradGuard no_grad;
    network.loss(x);
    expect_near(live_in(world) - before, predicted.gathered, "gathered");
  });
}

TEST(MemoryReport, OfAPlainModuleAndAsText) {
  Network network;
  const MemoryReport report = memory_report(network, *adamw({network.up}));
  ASSERT_EQ(report.ranks.size(), 1U);
  const MemoryBytes& bytes = report.fullest();
  EXPECT_EQ(bytes.parameters, 2 * kWeight + kFrozen);
  EXPECT_EQ(bytes.gradients, 2 * kWeight);
  EXPECT_EQ(bytes.state, 2 * kWeight);  // the optimizer has one of them
  EXPECT_EQ(bytes.gathered, 0);
  EXPECT_TRUE(contains(to_string(report), "each"));
  EXPECT_TRUE(contains(to_string(report), "774,144"));
}

TEST(MemoryReport, RefusesWhatItDoesNotKnow) {
  Network network;
  const torch::optim::LBFGS optimizer({network.up});
  EXPECT_TRUE(contains(error_of([&] { memory_report(network, optimizer); }),
                       "what this optimizer keeps is not known"));
  run_impatient(2, [](World& world) {
    Network ours;
    ours.up.set_data(distribute_tensor(ours.up.detach(), world.mesh({{"a", 2}}), {Shard(0)}));
    ours.down.set_data(distribute_tensor(ours.down.detach(), world.mesh({{"b", 2}}), {Shard(0)}));
    EXPECT_TRUE(contains(error_of([&] { memory_report(ours, *adamw({ours.up})); }),
                         "a report is about tensors on one mesh"));
  });
}

}  // namespace
}  // namespace tegula
