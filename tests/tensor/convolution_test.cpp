// Convolutions of images whose spatial dims are cut: only borders travel.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/images.h"

namespace tegula {
namespace convolution_test {

using Ints = std::vector<std::int64_t>;

struct ConvolutionCase {
  std::string name;
  Ints input;
  Ints weight;
  Ints stride;
  Ints padding;
  Ints dilation;
  std::int64_t groups = 1;
  bool transposed = false;
  Ints output_padding = {0};
};

void PrintTo(const ConvolutionCase& one, std::ostream* out) { *out << one.name; }

class Convolution : public testing::TestWithParam<ConvolutionCase> {};

TEST_P(Convolution, OfCutImagesIsAsPlain) {
  const ConvolutionCase& c = GetParam();
  const std::int64_t outputs = c.transposed ? c.weight[1] * c.groups : c.weight[0];
  expect_as_plain_of_images(
      {leaf(c.input), leaf(c.weight, 2), leaf({outputs}, 3)},
      [&](const Tensors& x) -> Tensors {
        return {at::convolution(x[0], x[1], x[2], c.stride, c.padding, c.dilation, c.transposed,
                                c.output_padding, c.groups)};
      },
      2);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Convolution,
    testing::Values(
        ConvolutionCase{"line", {2, 3, 11}, {4, 3, 3}, {1}, {1}, {1}},
        ConvolutionCase{"line_stride", {2, 3, 11}, {4, 3, 3}, {2}, {2}, {1}},
        ConvolutionCase{"wide_kernel", {1, 2, 7}, {2, 2, 7}, {1}, {3}, {1}},
        ConvolutionCase{"empty_shards", {1, 2, 5}, {2, 2, 4}, {1}, {0}, {1}},
        ConvolutionCase{"stride_over_kernel", {1, 2, 11}, {2, 2, 2}, {4}, {0}, {1}},
        ConvolutionCase{"plane", {2, 2, 7, 6}, {4, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
        ConvolutionCase{"plane_dilated", {2, 4, 7, 8}, {4, 2, 3, 2}, {2, 1}, {2, 1}, {2, 3}, 2},
        ConvolutionCase{"depthwise", {1, 4, 6, 5}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
        ConvolutionCase{"one_by_one", {2, 3, 5, 4}, {2, 3, 1, 1}, {1, 1}, {0, 0}, {1, 1}},
        ConvolutionCase{
            "volume", {1, 2, 4, 5, 3}, {2, 2, 3, 2, 2}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}},
        ConvolutionCase{"transposed_line", {2, 3, 7}, {3, 2, 3}, {2}, {1}, {1}, 1, true, {1}},
        ConvolutionCase{"transposed_gaps", {1, 2, 5}, {2, 2, 2}, {4}, {0}, {1}, 1, true, {2}},
        ConvolutionCase{"transposed_plane",
                        {2, 4, 5, 6},
                        {4, 1, 3, 2},
                        {2, 1},
                        {1, 0},
                        {1, 2},
                        2,
                        true,
                        {1, 0}}),
    [](const auto& one) { return one.param.name; });

// What a rank sends to a neighbour is a row or two, whatever the size of the image.
TEST(Convolution, SendsBordersOnly) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor plain = numbers({2, 3, 16, 12}).set_requires_grad(true);
    const at::Tensor x = distribute_tensor(plain.detach(), mesh, {Shard(2), Shard(3)});
    x.set_requires_grad(true);
    const at::Tensor weight =
        distribute_tensor(numbers({5, 3, 3, 3}, 2), mesh, {Replicate(), Replicate()});
    const CommLog log(world);
    const at::Tensor y = at::conv2d(x, weight, {}, 1, 1);
    EXPECT_EQ(placements_of(y), (Placements{Shard(2), Shard(3)}));
    // a row of 6, then a column of 8 with the row's corner and the padding; 2 images, 3 channels
    EXPECT_EQ(log.bytes(), 2 * 3 * 8 * (6 + 10)) << log.to_string();
    EXPECT_EQ(log.size(), 2U) << log.to_string();
  });
}

TEST(Convolution, KeepsChannelsLast) {
  run_impatient(2, [](World& world) {
    const at::Tensor plain = numbers({2, 4, 6, 5}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor weight = numbers({3, 4, 3, 3}, 2);
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Shard(2)});
    const at::Tensor w = distribute_tensor(weight, usual_mesh(world), {Replicate()});
    const at::Tensor want = at::conv2d(plain, weight);
    const at::Tensor got = at::conv2d(x, w);
    EXPECT_EQ(got.strides(), want.strides());
    EXPECT_EQ(difference(full_tensor(got), want), "");
  });
}

TEST(Convolution, OfHalvesAndComplexNumbersIsAsPlain) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kComplexDouble}) {
    AsPlain options;
    options.tolerance = type == at::kComplexDouble ? 1e-9 : 0.05;
    options.ways = [](const DeviceMesh& mesh, const Tensors& inputs) {
      std::vector<Way> ways = image_ways(mesh, inputs, 2);
      ways.resize(2);
      return ways;
    };
    expect_as_plain(
        {numbers({1, 2, 6, 5}).to(type).set_requires_grad(true),
         numbers({2, 2, 3, 3}, 2).to(type).set_requires_grad(true)},
        [](const Tensors& x) -> Tensors { return {at::conv2d(x[0], x[1])}; }, options);
  }
}

// NaN and infinity stay where they are.
TEST(Convolution, PadsWithZerosBesideNaN) {
  const at::Tensor image = numbers({1, 1, 6, 4});
  image[0][0][0][0] = std::numeric_limits<double>::quiet_NaN();
  image[0][0][5][3] = std::numeric_limits<double>::infinity();
  expect_as_plain_of_images(
      {image, numbers({1, 1, 3, 3}, 2)},
      [](const Tensors& x) -> Tensors { return {at::conv2d(x[0], x[1], {}, 1, 1)}; }, 2);
}

TEST(Convolution, RefusesWhatLibtorchRefuses) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({1, 2, 4}), usual_mesh(world), {Shard(2)});
    const at::Tensor w = distribute_tensor(numbers({1, 3, 3}), usual_mesh(world), {Replicate()});
    EXPECT_TRUE(contains(error_of([&] { at::conv1d(x, w); }), "expected input[1, 2, 4] to have 3"));
  });
}

}  // namespace convolution_test
}  // namespace tegula
