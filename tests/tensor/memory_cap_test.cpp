// redistribute with a cap on the bytes of a step's two tiles.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {
namespace memory_cap_test {

const at::Tensor kPlain = at::arange(64.F).view({8, 8});

at::Tensor cut_twice(const DeviceMesh& mesh) {
  return distribute_tensor(kPlain, mesh, {Shard(0), Shard(0)});
}

// A gather over both axes is faster for a small tensor, but has the whole of it in memory: 64 bytes
// to begin with and 256 after that.
TEST(MemoryCap, TakesASlowerWayThatKeepsToIt) {
  run_ranks(4, [](World& world) {
    const at::Tensor x = cut_twice(world.mesh({{"a", 2}, {"b", 2}}));
    const CommLog log(world);
    const at::Tensor fast = redistribute(x, {Replicate(), Shard(0)});
    EXPECT_EQ(log.size(), 1U) << log.to_string();  // an all-gather
    const at::Tensor small = redistribute(x, {Replicate(), Shard(0)}, {.memory_cap = 192});
    EXPECT_EQ(log.size(), 3U) << log.to_string();  // and a permutation before another
    EXPECT_TRUE(at::equal(to_local(small), to_local(fast)));
    EXPECT_TRUE(at::equal(full_tensor(small), kPlain));
  });
}

TEST(MemoryCap, ThatNoWayKeepsToIsRefusedBeforeAnythingIsSent) {
  run_ranks(4, [](World& world) {
    const at::Tensor x = cut_twice(world.mesh({{"a", 2}, {"b", 2}}));
    const CommLog log(world);
    try {
      redistribute(x, {Replicate(), Replicate()}, {.memory_cap = 300});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(),
                   "tegula: no way keeps to this peak memory\n"
                   "  from    f32[8, 8] on (a=2, b=2) as [S(0), S(0)]\n"
                   "  to      f32[8, 8] on (a=2, b=2) as [R, R]\n"
                   "  allowed 300 bytes\n"
                   "  needed  320 bytes\n"
                   "  hint    allow what is needed, or redistribute the tensor in parts");
    }
    EXPECT_TRUE(log.empty());
    EXPECT_TRUE(at::equal(
        full_tensor(redistribute(x, {Replicate(), Replicate()}, {.memory_cap = 320})), kPlain));
  });
}

TEST(MemoryCap, HoldsForATensorThatGoesToAnotherMesh) {
  run_ranks(4, [](World& world) {
    const at::Tensor x = cut_twice(world.mesh({{"a", 2}, {"b", 2}}));
    const DeviceMesh line = world.mesh({{"all", 4}});
    EXPECT_THROW(redistribute(x, line, {Replicate()}, {.memory_cap = 319}), UsageError);
    const at::Tensor y = redistribute(x, line, {Replicate()}, {.memory_cap = 320});
    EXPECT_TRUE(at::equal(to_local(y), kPlain));
  });
}

TEST(MemoryCap, IsNotForTheGradient) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(kPlain, mesh, {Replicate()}).requires_grad_();
    const at::Tensor y = redistribute(x, {Shard(0)}, {.memory_cap = 384});
    (y * y).sum().backward();
    EXPECT_TRUE(at::equal(full_tensor(x.grad()), kPlain * 2));
  });
}

}  // namespace memory_cap_test
}  // namespace tegula
