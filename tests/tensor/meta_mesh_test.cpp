// Meshes of "meta" over imagined ranks: a program runs for its shapes and its communication alone.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace meta_mesh_test {

DeviceMesh meta_mesh(const World& world) {
  return world.mesh(DeviceMesh({{"dp", 2}, {"tp", 4}}, {}, "meta"));
}

void expect_tile(const at::Tensor& tensor, at::IntArrayRef sizes) {
  const at::Tensor tile = to_local(tensor);
  EXPECT_EQ(tile.device().type(), at::kMeta);
  EXPECT_EQ(tensor.device().type(), at::kMeta);
  EXPECT_EQ(tile.sizes(), sizes);
}

struct FeedForward {
  explicit FeedForward(const DeviceMesh& mesh)
      : x(zeros({16, 32}, mesh, {Shard(0), Replicate()})),
        up(zeros({64, 32}, mesh, {Replicate(), Shard(0)},
                 at::TensorOptions(at::kFloat).requires_grad(true))),
        down(zeros({32, 64}, mesh, {Replicate(), Shard(1)},
                   at::TensorOptions(at::kFloat).requires_grad(true))) {}
  at::Tensor x;
  at::Tensor up;
  at::Tensor down;
};

TEST(MetaMesh, ATrainingStepHasTheShapesOfARealOne) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // there are no values to compare
  const World world = World::fake(8, 3);
  const DeviceMesh mesh = meta_mesh(world);
  const FeedForward net(mesh);
  const CommLog log(world);
  const at::Tensor hidden = at::gelu(at::linear(net.x, net.up));
  expect_tile(hidden, {8, 16});
  const at::Tensor y = at::linear(hidden, net.down);
  EXPECT_EQ(placements_of(y), (Placements{Shard(0), Partial(ReduceOp::Sum)}));
  expect_tile(y, {8, 32});
  at::softmax(y, 1).sum().backward();
  EXPECT_EQ(placements_of(net.up.grad()), (Placements{Replicate(), Shard(0)}));
  expect_tile(net.up.grad(), {16, 32});
  expect_tile(net.down.grad(), {32, 16});
  EXPECT_EQ(log.entries().front().axis, "tp") << log.to_string();
}

TEST(MetaMesh, ViewsReductionsAndMovesHaveTheShapesOfRealOnes) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  const World world = World::fake(8, 3);
  const DeviceMesh mesh = meta_mesh(world);
  const at::Tensor x = zeros({6, 10}, mesh, {Shard(0), Shard(1)});
  expect_tile(x, {3, 1});
  expect_tile(x.t(), {1, 3});
  expect_tile(at::log_softmax(x, 1), {3, 1});
  expect_tile(x.sum(1), {3});
  expect_tile(at::mean(x), {});
  expect_tile(redistribute(x, {Replicate(), Shard(0)}), {0, 10});
  expect_tile(redistribute(x, {Replicate(), Replicate()}), {6, 10});
  expect_tile(at::cat({x, x}, 0).contiguous(), to_local(at::cat({x, x}, 0)).sizes());
  expect_tile(at::cumsum(x, 1), {3, 1});
  expect_tile(rand({6, 10}, mesh, {Shard(0), Replicate()}), {3, 10});
  expect_tile(at::zeros_like(x).fill_(2), {3, 1});
}

TEST(MetaMesh, IsForImaginedWorlds) {
  run_impatient(2, [](World& world) {
    EXPECT_TRUE(
        contains(error_of([&] { world.mesh(DeviceMesh({{"tp", 2}}, {}, "meta")); }), "meta"));
    EXPECT_TRUE(contains(error_of([&] { world.mesh(DeviceMesh({{"tp", 2}}, {}, "xpu")); }),
                         "this libtorch has no device \"xpu\""));
  });
}

}  // namespace meta_mesh_test
}  // namespace tegula
