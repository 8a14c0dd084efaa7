// What memory_report predicts is what an allocator counts.
#include "tegula/parallel/memory_report.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace {

std::atomic<std::int64_t> bytes_for_results = 0;

// libtorch's own memory: passes everything on, and knows how many bytes live.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = real_->allocate(bytes);
    void* memory = data.get();
    const c10::Device device = data.device();
    live_ += static_cast<std::int64_t>(bytes);
    return {memory, new Block{std::move(data), bytes, this}, &release, device};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  std::int64_t live() const { return live_; }

 private:
  struct Block {
    c10::DataPtr data;
    std::size_t bytes;
    CountingAllocator* by;
  };
  static void release(void* block) {
    const std::unique_ptr<Block> gone(static_cast<Block*>(block));
    gone->by->live_ -= static_cast<std::int64_t>(gone->bytes);
  }

  c10::Allocator* real_ = c10::GetCPUAllocator();
  std::atomic<std::int64_t> live_{0};
};

// It outlives whatever was allocated by it.
CountingAllocator& counting() {
  static CountingAllocator* const allocator = new CountingAllocator;
  return *allocator;
}

// libtorch allocates by the counting allocator while it stands.
class Counted {
 public:
  Counted() : earlier_(c10::GetCPUAllocator()) { c10::SetAllocator(at::kCPU, &counting(), 255); }
  ~Counted() { c10::SetAllocator(at::kCPU, earlier_, 255); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  c10::Allocator* earlier_;
};

// Results of collectives that nobody uses any more are kept for others, so these bytes are the most
// that ever lived together.
std::int64_t live() { return counting().live() + bytes_for_results; }

// Weights that are much larger than activations; one is used twice, one is frozen. The sizes of
// their tiles are just below powers of two, to which memory for results of collectives is rounded.
struct Network : torch::nn::Module {
  Network() {
    const auto weight = [](std::int64_t rows, std::int64_t columns) {
      return at::full({rows, columns}, 0.01);
    };
    up = register_parameter("up", weight(504, 512));
    down = register_parameter("down", weight(512, 504));
    frozen = register_parameter("frozen", weight(504, 512), /*requires_grad=*/false);
    scale = register_buffer("scale", at::ones({80'000}));
  }
  at::Tensor loss(const at::Tensor& x) const {
    const at::Tensor y = at::linear(at::tanh(at::linear(x, up)), down);
    return at::linear(at::linear(y, frozen), down).square().mean();
  }
  at::Tensor up, down, frozen, scale;
};
constexpr std::int64_t kWeight = 504 * 512 * 4, kFrozen = kWeight;  // bytes

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

// Within 5%, or what activations take.
void expect_near(std::int64_t counted, std::int64_t predicted, const std::string& kind) {
  const double allowed = std::max(0.05 * static_cast<double>(predicted), 60'000.0);
  EXPECT_NEAR(static_cast<double>(counted), static_cast<double>(predicted), allowed) << kind;
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
  const Counted counted;
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const at::Tensor x = shard_batch(at::ones({4, 512}), mesh);
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
  const Counted counted;
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network network;
    FullyShardOptions options;
    options.most_bytes = 0;
    fully_shard(network, mesh, zero_3(), options);
    const MemoryBytes predicted =
        sum_of(memory_report(network, *adamw({network.up, network.down})));
    EXPECT_EQ(predicted.gathered, 2 * kWeight);
    const at::Tensor x = shard_batch(at::ones({2, 512}), mesh);
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
  EXPECT_TRUE(contains(to_string(report), "3,096,576"));
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

// Memory for results of collectives below a megabyte comes from here (comm/buffers.cpp). Linked
// into this program, it stands before the C library's.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) return nullptr;
  tegula::bytes_for_results += static_cast<std::int64_t>(bytes);
  return memory;
}
