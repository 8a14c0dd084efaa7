// Redistribution is the identity on the whole tensor, forward and backward, for every pair of
// placements.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/tensor/dtensor.h"

namespace tegula {
namespace redistribute_test {

Placements without_owed(Placements placements) {
  for (Placement& placement : placements) {
    if (owed_reduction(placement)) placement = Replicate();
  }
  return placements;
}

struct Placed {
  Placements placements;
  ShardOrder order;
};

// Everything that a mesh of these axes can do to a tensor, both shard orders included.
std::vector<Placed> all_placed(std::size_t axes, std::int64_t ndim) {
  std::vector<Placement> one = {Replicate(), Partial(), Partial(ReduceOp::Avg)};
  for (std::int64_t dim = 0; dim < ndim; ++dim) one.push_back(Shard(dim));
  std::vector<Placed> result = {{{}, {}}};
  for (std::size_t axis = 0; axis < axes; ++axis) {
    std::vector<Placed> longer;
    for (const Placed& begun : result) {
      for (const Placement& placement : one) {
        Placed next = begun;
        next.placements.push_back(placement);
        longer.push_back(next);
      }
    }
    result = longer;
  }
  std::vector<Placed> legal;
  for (Placed& placed : result) {
    // a sum and an average cannot both be owed in any order of a kind that differs
    const auto owed = [&](ReduceOp op) {
      return std::any_of(placed.placements.begin(), placed.placements.end(),
                         [&](const Placement& p) { return owed_reduction(p) == op; });
    };
    if (owed(ReduceOp::Sum) && owed(ReduceOp::Avg)) continue;
    legal.push_back(placed);
    const ShardOrder order = default_shard_order(placed.placements);
    if (order.size() == 1 && order[0].axes.size() == 2) {
      legal.push_back({placed.placements, {{order[0].dim, {order[0].axes[1], order[0].axes[0]}}}});
    }
  }
  return legal;
}

void check_pair(const DeviceMesh& mesh, const at::Tensor& whole, const Placed& from,
                const Placed& to) {
  SCOPED_TRACE(to_string(from.placements) + to_string(from.order) + " -> " +
               to_string(to.placements) + to_string(to.order));
  const at::Tensor x = distribute_tensor(whole, mesh, from.placements, {std::nullopt, from.order});
  x.requires_grad_();
  const at::Tensor y = redistribute(x, to.placements, {to.order, false, std::nullopt});
  EXPECT_EQ(placements_of(y), to.placements);
  EXPECT_TRUE(at::allclose(full_tensor(y.detach()), whole));
  const at::Tensor cotangent = at::arange(whole.numel(), whole.options()).view(whole.sizes()) + 1;
  (y * distribute_tensor(cotangent, mesh, to.placements, {std::nullopt, to.order}))
      .sum()
      .backward();
  ASSERT_TRUE(is_dtensor(x.grad()));
  EXPECT_EQ(placements_of(x.grad()), without_owed(from.placements));
  EXPECT_TRUE(at::allclose(full_tensor(x.grad()), cotangent));
}

void check_all_pairs(int ranks, const std::vector<MeshAxis>& axes, const Shape& shape) {
  run_ranks(ranks, [&](World& world) {
    const DeviceMesh mesh = world.mesh(axes);
    std::int64_t numel = 1;
    for (std::int64_t size : shape) numel *= size;
    const at::Tensor whole = at::arange(numel, at::kDouble).view(shape) / 8;
    const std::vector<Placed> states =
        all_placed(axes.size(), static_cast<std::int64_t>(shape.size()));
    for (const Placed& from : states) {
      for (const Placed& to : states) check_pair(mesh, whole, from, to);
    }
  });
}

TEST(Redistribute, IsTheIdentityForAllPairsOnOneAxis) {
  check_all_pairs(1, {{"a", 1}}, {3, 2});
  check_all_pairs(2, {{"a", 2}}, {5, 3});
  check_all_pairs(3, {{"a", 3}}, {4, 2});
  check_all_pairs(4, {{"a", 4}}, {3, 1});
  check_all_pairs(3, {{"a", 3}}, {0, 2});
}

TEST(Redistribute, IsTheIdentityForAllPairsOnTwoAxes) {
  check_all_pairs(4, {{"a", 2}, {"b", 2}}, {7, 3});
}

TEST(Redistribute, IsTheIdentityForSampledPairsOnThreeAxes) {
  run_ranks(8, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}, {"b", 2}, {"c", 2}});
    const at::Tensor whole = at::arange(35, at::kDouble).view({7, 5}) / 8;
    const std::vector<Placed> states = all_placed(3, 2);
    std::uint64_t random = 12345;
    const auto pick = [&]() -> const Placed& {
      random = random * 6364136223846793005U + 1442695040888963407U;
      return states[(random >> 33) % states.size()];
    };
    for (int pair = 0; pair < 60; ++pair) {
      const Placed& from = pick();
      check_pair(mesh, whole, from, pick());
    }
  });
}

}  // namespace redistribute_test
}  // namespace tegula
