// Flips, rolls, padding and joins along a dim that is cut: elements go where they belong, once.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/images.h"

namespace tegula {
namespace moved_elements_test {

using Make = std::function<at::Tensor(const Tensors& x)>;

struct MovingOp {
  std::string name;
  std::vector<std::vector<std::int64_t>> inputs;
  Make op;
};

void PrintTo(const MovingOp& one, std::ostream* out) { *out << one.name; }

class MovedElements : public testing::TestWithParam<MovingOp> {};

TEST_P(MovedElements, AlongACutDimAreAsPlain) {
  const MovingOp& moving = GetParam();
  Tensors inputs;
  for (const auto& shape : moving.inputs) inputs.push_back(leaf(shape, inputs.size() + 1));
  const Program program = [&](const Tensors& x) -> Tensors { return {moving.op(x)}; };
  expect_as_plain_of_images(inputs, program, 0);
  expect_as_plain(inputs, program);
}

INSTANTIATE_TEST_SUITE_P(
    Ops, MovedElements,
    testing::Values(
        MovingOp{"flip", {{5, 4}}, [](const Tensors& x) { return at::flip(x[0], {0}); }},
        MovingOp{"flip_all", {{7, 3}}, [](const Tensors& x) { return at::flip(x[0], {1, -2}); }},
        MovingOp{"roll", {{5, 4}}, [](const Tensors& x) { return at::roll(x[0], {-2}, {0}); }},
        MovingOp{"roll_twice",
                 {{5, 4}},
                 [](const Tensors& x) { return at::roll(x[0], {7, 1, 2}, {0, 1, 0}); }},
        MovingOp{"roll_flat", {{5, 4}}, [](const Tensors& x) { return at::roll(x[0], {3}); }},
        MovingOp{"pad",
                 {{5, 4}},
                 [](const Tensors& x) { return at::constant_pad_nd(x[0], {1, 2, 3, 0}, 7); }},
        MovingOp{"crop",
                 {{5, 6}},
                 [](const Tensors& x) { return at::constant_pad_nd(x[0], {-1, -2, 3, -2}); }},
        MovingOp{"reflect_line",
                 {{2, 3, 7}},
                 [](const Tensors& x) { return at::reflection_pad1d(x[0], {6, 2}); }},
        MovingOp{"reflect",
                 {{2, 2, 4, 5}},
                 [](const Tensors& x) { return at::reflection_pad2d(x[0], {1, 2, 3, 1}); }},
        MovingOp{"reflect_volume",
                 {{1, 1, 3, 4, 3}},
                 [](const Tensors& x) { return at::reflection_pad3d(x[0], {1, 2, 3, 1, 0, 1}); }},
        MovingOp{"replicate_line",
                 {{3, 4}},
                 [](const Tensors& x) { return at::replication_pad1d(x[0], {3, 9}); }},
        MovingOp{"replicate",
                 {{1, 2, 4, 5}},
                 [](const Tensors& x) { return at::replication_pad2d(x[0], {1, 2, 3, 0}); }},
        MovingOp{"cat",
                 {{5, 4}, {2, 4}, {3, 4}},
                 [](const Tensors& x) { return at::cat({x[0], x[1], x[2]}, 0); }},
        MovingOp{
            "cat_itself", {{3, 5}}, [](const Tensors& x) { return at::cat({x[0], x[0]}, -1); }},
        MovingOp{"slice", {{7, 4}}, [](const Tensors& x) { return x[0].slice(0, -5, 6, 2) * 2; }},
        MovingOp{"rot90", {{5, 4, 3}}, [](const Tensors& x) { return at::rot90(x[0], 3, {0, 2}); }},
        MovingOp{"circular",
                 {{1, 2, 5, 4}},
                 [](const Tensors& x) { return at::_pad_circular(x[0], {1, 2, 0, 3}); }},
        MovingOp{"diff", {{7, 3}}, [](const Tensors& x) { return at::diff(x[0], 1, 0); }}),
    [](const auto& one) { return one.param.name; });

// A row of 4 numbers is 32 bytes; each rank of two has 4 rows.
TEST(MovedElements, SendWhatBelongsElsewhereOnly) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({8, 4}), usual_mesh(world), {Shard(0)});
    const CommLog log(world);
    const auto bytes_of = [&](const std::function<at::Tensor()>& op) {
      const std::int64_t before = log.bytes();
      EXPECT_EQ(placements_of(op()), Placements{Shard(0)});
      return log.bytes() - before;
    };
    EXPECT_EQ(bytes_of([&] { return at::flip(x, {0}); }), 4 * 32);
    EXPECT_EQ(bytes_of([&] { return at::roll(x, {1}, {0}); }), 32);
    EXPECT_EQ(bytes_of([&] { return at::constant_pad_nd(x, {0, 0, 1, 1}); }), 0);
    EXPECT_EQ(bytes_of([&] { return at::constant_pad_nd(x, {0, 0, 2, 0}); }),
              world.rank() == 0 ? 32 : 0);
    EXPECT_EQ(bytes_of([&] { return at::cat({x, x}, 0); }), 4 * 32);
    EXPECT_EQ(bytes_of([&] { return at::cat(x.chunk(4), 0); }), 0);
  });
}

TEST(MovedElements, GradientsOfSlicesStayWhereTheyAre) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({8, 4}), usual_mesh(world), {Shard(0)});
    x.set_requires_grad(true);
    const at::Tensor y = x.slice(0, 3, 7) * 2;
    const CommLog log(world);
    y.backward(at::ones_like(y));
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_EQ(placements_of(x.grad()), Placements{Shard(0)});
  });
}

TEST(MovedElements, OfOtherTypesAreAsPlain) {
  const at::Tensor x = numbers({7, 4}).mul(10);
  for (const at::ScalarType type :
       {at::kBool, at::kByte, at::kLong, at::kBFloat16, at::kComplexDouble}) {
    expect_as_plain_of_images(
        {x.to(type)},
        [](const Tensors& t) -> Tensors {
          return {at::flip(t[0], {0, 1}), at::roll(t[0], {3, 1}, {0, 1}),
                  at::constant_pad_nd(t[0], {1, 1, 2, -1}, 1), at::cat({t[0], t[0]}, 0)};
        },
        0, false);
  }
}

TEST(MovedElements, OfEmptyAndTransposedTensorsAreAsPlain) {
  for (const at::Tensor& x :
       {numbers({0, 4}), numbers({4, 6}).t(), numbers({6, 1}).expand({6, 4})}) {
    expect_as_plain_of_images(
        {x.clone()},
        [](const Tensors& t) -> Tensors {
          return {at::flip(t[0].t(), {0, 1}), at::roll(t[0].t(), {3}, {1}),
                  at::constant_pad_nd(t[0].t(), {1, 1, 2, 1}, 1), at::cat({t[0].t(), t[0].t()}, 1)};
        },
        0, false);
  }
}

}  // namespace moved_elements_test
}  // namespace tegula
