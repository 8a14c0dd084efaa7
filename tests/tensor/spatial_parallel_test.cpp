// A convolutional network whose images are cut over height and width trains as on one rank, and
// what a step communicates is what it has to.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "tegula/comm/comm_log.h"
#include "tegula/tensor/module.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace spatial_parallel_test {

struct NetworkImpl : torch::nn::Module {
  NetworkImpl() {
    const auto convolution = [](std::int64_t from, std::int64_t to, std::int64_t stride) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1).stride(stride));
    };
    first = register_module("first", convolution(2, 4, 1));
    second = register_module("second", convolution(4, 6, 2));
    third = register_module("third", convolution(6, 6, 1));
    last = register_module("last", torch::nn::Linear(6, 3));
    to(torch::kDouble);
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = at::max_pool2d(at::relu(first(images)), {3, 3}, {2, 2}, {1, 1});
    x = at::relu(second(x));
    x = x + at::relu(third(x));
    x = at::avg_pool2d(x, {2, 2}, {1, 1}, {1, 1}, false, false);
    return last(x.mean({2, 3}));
  }

  torch::nn::Conv2d first{nullptr}, second{nullptr}, third{nullptr};
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(Network);

// Ranks are threads here, and torch's generator is one for all of them.
Network build() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(3);
  return Network();
}

double step(Network& network, torch::optim::Optimizer& optimizer, const at::Tensor& images,
            const at::Tensor& labels) {
  const at::Tensor loss = at::cross_entropy_loss(network(images), labels);
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

TEST(SpatialParallel, TrainsAsOnOneRankAndSendsBordersAndTotalsOnly) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"height", 2}, {"width", 2}});
    const Placements whole(2, Replicate());
    Network plain = build(), network = build();
    distribute_module(*network, mesh, PlacementPatterns{});
    torch::optim::SGD plain_sgd(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::SGD sgd(network->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const at::Tensor images = numbers({4, 2, 22, 17});
    const at::Tensor labels = at::tensor({0, 1, 2, 1}, at::kLong);
    const at::Tensor cut = distribute_tensor(images, mesh, {Shard(2), Shard(3)});
    const at::Tensor placed_labels = distribute_tensor(labels, mesh, whole);
    for (int i = 0; i < 4; ++i) {
      const CommLog log(world);
      const double loss = step(network, sgd, cut, placed_labels);
      EXPECT_NEAR(loss, step(plain, plain_sgd, images, labels), 1e-9);

      // borders in all-to-alls, gradients and totals in all-reduces; nothing is gathered
      std::int64_t borders = 0, totals = 0;
      for (const CommEntry& entry : log.entries()) {
        const bool is_border = entry.kind == CommKind::AllToAll;
        const bool slides =
            contains(entry.op, "aten::convolution") || contains(entry.op, "_pool2d");
        EXPECT_EQ(is_border, slides) << to_string(entry);
        EXPECT_TRUE(is_border || entry.kind == CommKind::AllReduce) << to_string(entry);
        (is_border ? borders : totals) += entry.bytes;
      }
      std::int64_t parameters = 0;
      for (const at::Tensor& parameter : plain->parameters()) parameters += parameter.numel();
      const std::int64_t means = 4 * 6;  // per image and channel
      EXPECT_LE(totals, 8 * (parameters + means)) << log.summary();
      EXPECT_LE(borders, images.numel() * 8) << log.summary();
    }
    for (const auto& item : plain->named_parameters()) {
      EXPECT_EQ(difference(full_tensor(network->named_parameters()[item.key()]), item.value()), "")
          << item.key();
    }
  });
}

}  // namespace spatial_parallel_test
}  // namespace tegula
