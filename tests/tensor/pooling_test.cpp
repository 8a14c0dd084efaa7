// Pooling over spatial dims that are cut: only borders travel.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/images.h"

namespace tegula {
namespace pooling_test {

using Ints = std::vector<std::int64_t>;

struct PoolingCase {
  std::string name;
  Ints input;
  Ints kernel;
  Ints stride;
  Ints padding;
  Ints dilation;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor = std::nullopt;
};

void PrintTo(const PoolingCase& one, std::ostream* out) { *out << one.name; }

class MaxPooling : public testing::TestWithParam<PoolingCase> {};
class AveragePooling : public testing::TestWithParam<PoolingCase> {};

TEST_P(MaxPooling, OfCutImagesIsAsPlain) {
  const PoolingCase& c = GetParam();
  const auto first = static_cast<std::int64_t>(c.input.size() - c.kernel.size());
  expect_as_plain_of_images(
      {leaf(c.input)},
      [&](const Tensors& x) -> Tensors {
        const auto [values, indices] =
            c.kernel.size() == 2 ? at::max_pool2d_with_indices(x[0], c.kernel, c.stride, c.padding,
                                                               c.dilation, c.ceil_mode)
                                 : at::max_pool3d_with_indices(x[0], c.kernel, c.stride, c.padding,
                                                               c.dilation, c.ceil_mode);
        return {values, indices};
      },
      first);
}

TEST_P(AveragePooling, OfCutImagesIsAsPlain) {
  const PoolingCase& c = GetParam();
  const auto first = static_cast<std::int64_t>(c.input.size() - c.kernel.size());
  expect_as_plain_of_images(
      {leaf(c.input)},
      [&](const Tensors& x) -> Tensors {
        return {c.kernel.size() == 2 ? at::avg_pool2d(x[0], c.kernel, c.stride, c.padding,
                                                      c.ceil_mode, c.count_include_pad, c.divisor)
                                     : at::avg_pool3d(x[0], c.kernel, c.stride, c.padding,
                                                      c.ceil_mode, c.count_include_pad, c.divisor)};
      },
      first);
}

const auto kCases = testing::Values(
    PoolingCase{"halves", {2, 3, 8, 6}, {2, 2}, {}, {0, 0}, {1, 1}},
    PoolingCase{"overlap", {2, 2, 9, 7}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, false, false},
    PoolingCase{"ceil", {1, 2, 8, 7}, {3, 2}, {2, 2}, {1, 0}, {1, 1}, true, false},
    PoolingCase{"ceil_with_padding", {1, 2, 8, 7}, {3, 2}, {2, 2}, {1, 1}, {1, 1}, true, true},
    PoolingCase{"divisor", {2, 7, 5}, {3, 2}, {1, 2}, {1, 1}, {1, 1}, true, true, 5},
    PoolingCase{"wide", {1, 1, 5, 5}, {5, 4}, {1, 1}, {2, 2}, {1, 1}},
    PoolingCase{"volume", {1, 2, 5, 4, 3}, {2, 3, 2}, {2, 1, 1}, {1, 1, 0}, {1, 1, 1}, true});

std::string name_of_case(const testing::TestParamInfo<PoolingCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Cases, MaxPooling, kCases, name_of_case);
INSTANTIATE_TEST_SUITE_P(Cases, AveragePooling, kCases, name_of_case);
INSTANTIATE_TEST_SUITE_P(Dilated, MaxPooling,
                         testing::Values(PoolingCase{
                             "dilated", {1, 2, 9, 8}, {3, 2}, {2, 1}, {1, 1}, {2, 3}}),
                         name_of_case);

TEST(MaxPooling, FindsNaNAndSaysWhereInfinitiesAre) {
  const at::Tensor image = at::full({1, 1, 6, 6}, -std::numeric_limits<double>::infinity());
  image[0][0][2][3] = std::numeric_limits<double>::quiet_NaN();
  image[0][0][5][0] = 1;
  expect_as_plain_of_images(
      {image.to(at::kDouble)},
      [](const Tensors& x) -> Tensors {
        const auto [values, indices] = at::max_pool2d_with_indices(x[0], {3, 3}, {1, 1}, {1, 1});
        return {values, indices};
      },
      2);
}

TEST(MaxPooling, OfIntegersIsAsPlain) {
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kByte}) {
    expect_as_plain_of_images(
        {numbers({2, 2, 7, 6}).mul(10).to(type)},
        [](const Tensors& x) -> Tensors { return {at::max_pool2d(x[0], {3, 3}, {2, 2}, {1, 1})}; },
        2);
  }
}

TEST(AveragePooling, OfIntegersAndHalvesIsAsPlain) {
  for (const at::ScalarType type : {at::kLong, at::kBFloat16, at::kHalf}) {
    expect_as_plain_of_images(
        {numbers({2, 2, 7, 6}).mul(10).to(type)},
        [](const Tensors& x) -> Tensors {
          return {at::avg_pool2d(x[0], {3, 3}, {2, 2}, {1, 1}, true, false)};
        },
        2);
  }
}

TEST(Pooling, ToAGivenSizeIsAsPlain) {
  for (const std::int64_t outputs : {3, 4}) {
    expect_as_plain_of_images(
        {leaf({2, 3, 6, 9})},
        [&](const Tensors& x) -> Tensors {
          const auto [values, indices] = at::adaptive_max_pool2d(x[0], {2, outputs});
          return {at::adaptive_avg_pool2d(x[0], {2, outputs}), values, indices};
        },
        2);
  }
  expect_as_plain_of_images(
      {leaf({1, 2, 4, 6, 3})},
      [&](const Tensors& x) -> Tensors {
        return {at::adaptive_avg_pool3d(x[0], {2, 3, 1}),
                std::get<0>(at::adaptive_max_pool3d(x[0], {2, 3, 1}))};
      },
      2);
}

TEST(Pooling, AlongALineIsAsPlain) {
  expect_as_plain_of_images(
      {leaf({2, 3, 11})},
      [](const Tensors& x) -> Tensors {
        return {at::max_pool1d(x[0], {3}, {2}, {1}),
                at::avg_pool1d(x[0], {3}, {2}, {1}, true, false)};
      },
      2);
}

TEST(FractionalPooling, TakesTheRandomNumbersOfTheFirstRank) {
  const at::Tensor image = numbers({2, 3, 9, 8});
  const at::Tensor volume = numbers({2, 3, 7, 6, 5});
  run_impatient(3, [&](World& world) {
    const auto drawn = [&](std::int64_t dims, int rank) {
      return at::full({2, 3, dims}, 0.1 + 0.3 * rank, at::kDouble);
    };
    for (int i = 0; i < 2; ++i) {  // the second call's decision is remembered
      for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(2))}) {
        const auto placed = [&](const at::Tensor& whole) {
          return distribute_tensor(whole, usual_mesh(world), {placement});
        };
        const auto [flat, flat_indices] =
            at::fractional_max_pool2d(placed(image), {2, 3}, {5, 4}, drawn(2, world.rank()));
        const auto [plain, plain_indices] =
            at::fractional_max_pool2d(image, {2, 3}, {5, 4}, drawn(2, 0));
        EXPECT_TRUE(at::equal(full_tensor(flat), plain));
        EXPECT_TRUE(at::equal(full_tensor(flat_indices), plain_indices));
        const at::Tensor deep = std::get<0>(at::fractional_max_pool3d(
            placed(volume), {2, 3, 2}, {5, 3, 3}, drawn(3, world.rank())));
        EXPECT_TRUE(at::equal(full_tensor(deep), std::get<0>(at::fractional_max_pool3d(
                                                     volume, {2, 3, 2}, {5, 3, 3}, drawn(3, 0)))));
      }
    }
  });
}

// The gradient of an average reads no input, that of a maximum only where it was.
TEST(Pooling, SendsBordersOnly) {
  run_impatient(3, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({1, 2, 12, 5}), usual_mesh(world), {Shard(2)});
    x.set_requires_grad(true);
    const std::int64_t row = 2 * 5 * 8;  // bytes
    const std::int64_t sides = world.rank() == 1 ? 2 : 1;
    CommLog log(world);
    const at::Tensor maxima = at::max_pool2d(x, {3, 1}, {1, 1}, {1, 0});
    EXPECT_EQ(log.bytes(), sides * row) << log.to_string();
    log.clear();
    const at::Tensor averages = at::avg_pool2d(x, {2, 2}, {2, 2});
    EXPECT_EQ(log.bytes(), 0) << log.to_string();
    EXPECT_EQ(placements_of(averages), Placements{Shard(2)});
    log.clear();
    maxima.sum().backward();
    EXPECT_EQ(log.bytes(), sides * row) << log.to_string();
  });
}

}  // namespace pooling_test
}  // namespace tegula
