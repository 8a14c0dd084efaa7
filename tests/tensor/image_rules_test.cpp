// Layers of images on tiles: what a cut of the batch or of the channels sends.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace image_rules_test {

// The program on inputs placed like this, on two ranks: nothing is sent, and the result is placed
// as said. Then all of it on other placements and meshes, with gradients.
void expect_nothing_sent(const Tensors& inputs, const Placements& placements,
                         const Program& program, const Placement& result) {
  {
    const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
    run_impatient(2, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      Tensors placed;
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        placed.push_back(distribute_tensor(inputs[k].detach(), mesh, {placements[k]}));
      }
      const CommLog log(world);
      const at::Tensor out = program(placed).front();
      EXPECT_EQ(placements_of(out), Placements{result});
      EXPECT_TRUE(log.empty()) << log.to_string();
      EXPECT_EQ(difference(full_tensor(out), program(inputs).front().detach()), "");
    });
  }
  expect_as_plain(inputs, program);
}

const Program kConvolution = [](const Tensors& in) -> Tensors {
  return {at::conv2d(in[0], in[1], in[2], /*stride=*/2, /*padding=*/1)};
};

Tensors convolution_inputs() {
  return {leaf({4, 6, 5, 7}, 1), leaf({8, 6, 3, 2}, 2), leaf({8}, 3)};
}

TEST(ImageRules, AConvolutionOfACutBatchStaysCut) {
  expect_nothing_sent(convolution_inputs(), {Shard(0), Replicate(), Replicate()}, kConvolution,
                      Shard(0));
}

TEST(ImageRules, AConvolutionWithCutOutputsCutsItsChannels) {
  expect_nothing_sent(convolution_inputs(), {Replicate(), Shard(0), Shard(0)}, kConvolution,
                      Shard(1));
}

TEST(ImageRules, AConvolutionOfCutInputsOwesASum) {
  expect_nothing_sent(convolution_inputs(), {Shard(1), Shard(1), Replicate()}, kConvolution,
                      Partial());
}

TEST(ImageRules, ATransposedConvolutionCutsItsChannels) {
  expect_nothing_sent(
      {leaf({4, 6, 5}, 1), leaf({6, 8, 3}, 2), leaf({8}, 3)}, {Replicate(), Shard(1), Shard(0)},
      [](const Tensors& in) -> Tensors {
        return {at::conv_transpose1d(in[0], in[1], in[2], 2, 1, 1)};
      },
      Shard(1));
}

TEST(ImageRules, AConvolutionOfEachChannelByItselfKeepsTheirCut) {
  expect_nothing_sent(
      {leaf({3, 6, 5, 7}, 1), leaf({6, 1, 3, 3}, 2), leaf({6}, 3)}, {Shard(1), Shard(0), Shard(0)},
      [](const Tensors& in) -> Tensors {
        return {at::conv2d(in[0], in[1], in[2], 1, 1, 1, /*groups=*/6)};
      },
      Shard(1));
}

TEST(ImageRules, AConvolutionOfOneElementLeavesSpaceCut) {
  expect_nothing_sent(
      {leaf({3, 6, 5, 8}, 1), leaf({4, 6, 1, 1}, 2), leaf({4}, 3)},
      {Shard(3), Replicate(), Replicate()},
      [](const Tensors& in) -> Tensors { return {at::conv2d(in[0], in[1], in[2])}; }, Shard(3));
}

TEST(ImageRules, PoolsKeepCutsOfBatchAndChannels) {
  for (const std::int64_t dim : {0, 1}) {
    const auto expect = [&](const std::function<at::Tensor(const at::Tensor&)>& pool) {
      expect_nothing_sent(
          {leaf({4, 6, 7, 9})}, {Shard(dim)},
          [&](const Tensors& in) -> Tensors { return {pool(in[0])}; }, Shard(dim));
    };
    expect([](const at::Tensor& x) { return at::max_pool2d(x, 3, 2, 1); });
    expect([](const at::Tensor& x) { return at::avg_pool2d(x, 2); });
    expect([](const at::Tensor& x) { return at::adaptive_avg_pool2d(x, {2, 3}); });
    expect([](const at::Tensor& x) { return at::upsample_bilinear2d(x, {9, 5}, true); });
    expect([](const at::Tensor& x) { return at::reflection_pad2d(x, {1, 2, 0, 1}); });
  }
}

TEST(ImageRules, AGroupNormOfACutBatchStaysCut) {
  expect_nothing_sent(
      {leaf({5, 6, 4}, 1), leaf({6}, 2), leaf({6}, 3)}, {Shard(0), Replicate(), Replicate()},
      [](const Tensors& in) -> Tensors { return {at::group_norm(in[0], 3, in[1], in[2])}; },
      Shard(0));
}

}  // namespace image_rules_test
}  // namespace tegula
