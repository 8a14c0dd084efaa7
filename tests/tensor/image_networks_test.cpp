// Networks of images whose batch is cut: they train in strict mode, learn as on one rank, and
// exchange gradients, totals of batch norms and the loss, nothing else.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "tegula/comm/comm_log.h"
#include "tegula/tensor/module.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"
#include "tests/tensor/small_transformer.h"

namespace tegula {
namespace image_networks_test {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                       std::int64_t stride = 1) {
  return nn::Conv2d(
      nn::Conv2dOptions(inputs, outputs, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// Two convolutions beside a short cut.
struct BlockImpl : nn::Module {
  BlockImpl(std::int64_t inputs, std::int64_t outputs, std::int64_t stride)
      : first(convolution(inputs, outputs, 3, stride)),
        first_norm(outputs),
        second(convolution(outputs, outputs, 3)),
        second_norm(outputs) {
    register_module("first", first);
    register_module("first_norm", first_norm);
    register_module("second", second);
    register_module("second_norm", second_norm);
    if (stride != 1 || inputs != outputs) {
      short_cut = nn::Sequential(convolution(inputs, outputs, 1, stride), nn::BatchNorm2d(outputs));
      register_module("short_cut", short_cut);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner = at::relu(first_norm(first(x)));
    return at::relu(second_norm(second(inner)) +
                    (short_cut.is_empty() ? x : short_cut->forward(x)));
  }
  nn::Conv2d first;
  nn::BatchNorm2d first_norm;
  nn::Conv2d second;
  nn::BatchNorm2d second_norm;
  nn::Sequential short_cut{nullptr};
};
TORCH_MODULE(Block);

// As ResNet-18 is built: four stages of two blocks.
struct ResNet : nn::Module {
  ResNet() {
    stem = nn::Sequential(convolution(3, 4, 7, 2), nn::BatchNorm2d(4), nn::ReLU(),
                          nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
    std::int64_t inputs = 4;
    for (const std::int64_t outputs : {4, 6, 8, 10}) {
      stages->push_back(Block(inputs, outputs, outputs == 4 ? 1 : 2));
      stages->push_back(Block(outputs, outputs, 1));
      inputs = outputs;
    }
    register_module("stem", stem);
    register_module("stages", stages);
    register_module("head", head);
  }
  at::Tensor loss(const at::Tensor& images, const at::Tensor& targets) {
    const at::Tensor features =
        at::adaptive_avg_pool2d(stages->forward(stem->forward(images)), {1, 1});
    return at::cross_entropy_loss(head(features.flatten(1)), targets);
  }
  nn::Sequential stem;
  nn::Sequential stages;
  nn::Linear head{10, 5};
};

nn::Sequential twice(std::int64_t inputs, std::int64_t outputs) {
  return nn::Sequential(convolution(inputs, outputs, 3), nn::BatchNorm2d(outputs), nn::ReLU(),
                        convolution(outputs, outputs, 3), nn::GroupNorm(2, outputs), nn::ReLU());
}

// As a U-Net is built: down by pooling, up by a transposed convolution and by interpolation, with
// what was there on the way down beside it.
struct UNet : nn::Module {
  UNet() {
    register_module("down", down);
    register_module("middle", middle);
    register_module("bottom", bottom);
    register_module("rise", rise);
    register_module("merge", merge);
    register_module("up", up);
    register_module("head", head);
  }
  at::Tensor loss(const at::Tensor& images, const at::Tensor& targets) {
    const at::Tensor fine = down->forward(images);
    const at::Tensor coarse = middle->forward(at::max_pool2d(fine, 2));
    const at::Tensor lowest = bottom->forward(at::avg_pool2d(coarse, 2));
    const at::Tensor risen = merge->forward(at::cat({coarse, rise(lowest)}, 1));
    const at::Tensor wide = at::upsample_bilinear2d(risen, fine.sizes().slice(2), false);
    const at::Tensor padded = at::constant_pad_nd(up->forward(at::cat({fine, wide}, 1)), {1, 1});
    return at::mse_loss(head(padded), targets);
  }
  nn::Sequential down = twice(3, 4);
  nn::Sequential middle = twice(4, 6);
  nn::Sequential bottom = twice(6, 8);
  nn::ConvTranspose2d rise{nn::ConvTranspose2dOptions(8, 6, 2).stride(2)};
  nn::Sequential merge = twice(12, 4);
  nn::Sequential up = twice(8, 4);
  nn::Conv2d head{nn::Conv2dOptions(4, 2, {1, 3})};
};

// The same numbers on every rank.
template <class Network>
std::shared_ptr<Network> made() {
  const torch::NoGradGuard no_grad;
  auto network = std::make_shared<Network>();
  double phase = 0;
  for (const at::Tensor& parameter : network->parameters()) {
    parameter.copy_(small::waves(parameter.sizes(), phase += 1) * 0.5);
  }
  network->to(at::kDouble);
  return network;
}

bool is_allowed(const CommEntry& entry) {
  static const std::set<std::string> allowed = {
      "aten::native_batch_norm", "aten::native_batch_norm_backward", "aten::nll_loss_forward",
      "gradient of a leaf", "full_tensor"};
  return allowed.contains(entry.op);
}

template <class Network>
void expect_to_train_as_plain(int ranks, const at::Tensor& images, const at::Tensor& targets) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  std::vector<double> plain_losses;
  const auto train = [&](Network& network, const at::Tensor& x, const at::Tensor& y,
                         const auto& take_loss) {
    torch::optim::SGD optimizer(network.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    for (int step = 0; step < 3; ++step) {
      const at::Tensor loss = network.loss(x, y);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      take_loss(loss, static_cast<std::size_t>(step));
    }
  };
  const auto plain = made<Network>();
  train(*plain, images, targets,
        [&](const at::Tensor& loss, std::size_t) { plain_losses.push_back(loss.item<double>()); });
  run_impatient(ranks, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", ranks}});
    const auto network = made<Network>();
    distribute_module(*network, mesh);
    const at::Tensor x = distribute_tensor(images, mesh, {Shard(0)});
    const at::Tensor y = distribute_tensor(targets, mesh, {Shard(0)});
    const CommLog log(world);
    const StrictMode strict;
    train(*network, x, y, [&](const at::Tensor& loss, std::size_t step) {
      EXPECT_NEAR(full_tensor(loss).item<double>(), plain_losses[step], 1e-8);
    });
    for (const CommEntry& entry : log.entries()) EXPECT_TRUE(is_allowed(entry)) << to_string(entry);
    const auto buffers = network->named_buffers();
    for (const auto& buffer : plain->named_buffers()) {
      EXPECT_EQ(difference(full_tensor(buffers[buffer.key()]), buffer.value(), 1e-8), "")
          << buffer.key();
    }
  });
  EXPECT_LT(plain_losses.back(), plain_losses.front());
}

TEST(ImageNetworks, AResNetWithACutBatchTrainsAsOnOneRank) {
  const at::Tensor images = small::waves({7, 3, 34, 34}).to(at::kDouble);
  const at::Tensor targets = at::arange(7).remainder(5);
  for (const int ranks : {2, 3}) expect_to_train_as_plain<ResNet>(ranks, images, targets);
}

TEST(ImageNetworks, AUNetWithACutBatchTrainsAsOnOneRank) {
  const at::Tensor images = small::waves({5, 3, 12, 16}).to(at::kDouble);
  const at::Tensor targets = small::waves({5, 2, 12, 16}, 3).to(at::kDouble);
  for (const int ranks : {2, 3}) expect_to_train_as_plain<UNet>(ranks, images, targets);
}

}  // namespace image_networks_test
}  // namespace tegula
