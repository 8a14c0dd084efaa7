// Tensors that lie in memory with gaps, expanded or without elements; found by random programs,
// each as small as it gets.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tegula/tensor/dtensor.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace odd_layouts_test {

at::Tensor numbers(at::IntArrayRef shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble).reshape(shape).sin();
}

void expect_same(const at::Tensor& distributed, const at::Tensor& plain) {
  const at::NoGradGuard guard;
  EXPECT_TRUE(at::allclose(full_tensor(distributed), plain, 1e-12, 1e-12))
      << full_tensor(distributed) << "\ninstead of\n"
      << plain;
}

// Runs `body` on a plain tensor and on it distributed over two ranks; the results are the same.
void expect_same_on(at::IntArrayRef shape, const Placements& placements,
                    const std::function<at::Tensor(const at::Tensor&)>& body) {
  run_ranks(2, [&](World& world) {
    const at::Tensor plain = numbers(shape);
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    expect_same(body(distribute_tensor(plain.clone(), mesh, placements, {std::nullopt, {}})),
                body(plain));
  });
}

TEST(OddLayouts, AFlattenedSelectionOfACutTensorHasItsOwnValues) {
  expect_same_on({6, 5, 7}, {Shard(1)},
                 [](const at::Tensor& x) { return x.select(2, 3).flatten(); });
}

TEST(OddLayouts, AFlattenedSliceOfACutTensorHasItsOwnValues) {
  expect_same_on({4, 6, 2}, {Shard(0)},
                 [](const at::Tensor& x) { return x.narrow(2, 1, 1).flatten(); });
}

TEST(OddLayouts, AnExpandedTensorWithAnOwedSumCanBeFlattened) {
  expect_same_on({4, 5}, {Partial()}, [](const at::Tensor& x) {
    return at::linear(x.expand({3, 4, 5}), at::ones_like(x.narrow(0, 0, 2)));
  });
}

TEST(OddLayouts, AnExpandedTensorThatWasRedistributedCanBeFlattened) {
  run_ranks(2, [](World& world) {
    const at::Tensor plain = numbers({7, 4, 1});
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(1)});
    const at::Tensor moved = redistribute(x.expand({7, 4, 3}), {Shard(1)});
    expect_same(moved.flatten(0, 1), plain.expand({7, 4, 3}).flatten(0, 1));
  });
}

TEST(EmptyShards, SoftmaxAlongACutDimWithoutElementsIsEmpty) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(at::zeros({5, 0}), mesh, {Shard(1)});
    EXPECT_EQ(at::softmax(x, 1).sizes(), x.sizes());
    EXPECT_EQ(at::log_softmax(x, -1).sizes(), x.sizes());
  });
}

TEST(OddLayouts, DropoutOfAViewWithGapsHasNone) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(numbers({4, 6}), mesh, {Replicate()});
    const at::Tensor view = x.slice(1, 0, 3);  // rows lie 6 apart
    for (const at::Tensor& result : {std::get<0>(at::native_dropout(view, 0.5, true)),
                                     std::get<1>(at::native_dropout(view, 0.5, true)),
                                     at::bernoulli(view.abs().clamp(0, 1))}) {
      EXPECT_TRUE(result.is_contiguous());
      expect_same(result.as_strided({2}, {1}, 3), full_tensor(result)[1].slice(0, 0, 2));
    }
  });
}

TEST(RightRules, ParanoidModeDoesNotReadWhatIsOverwritten) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  EXPECT_NO_THROW(run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(numbers({3}), mesh, {Replicate()});
    const at::Tensor unset = x.clone();
    to_local(unset).fill_(world.rank());
    unset.copy_(x);
    expect_same(unset, numbers({3}));
  }));
}

}  // namespace odd_layouts_test
}  // namespace tegula
