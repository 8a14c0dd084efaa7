// Collectives on plain tensors, and their gradients: the loss is the sum of what the ranks
// backpropagate.
#include "tegula/tensor/collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace collectives_test {

constexpr int kRanks = 3;

at::Tensor leaf_of(int rank, at::IntArrayRef shape) {
  return leaf(shape, static_cast<std::uint64_t>(rank) + 1);
}

// What a program of all ranks computes, from all ranks' inputs, in one place.
using OnOneRank = std::function<Tensors(const Tensors& inputs)>;
using OnEach = std::function<at::Tensor(const Group& group, const at::Tensor& input)>;

// Compares a rank's result, first and second gradient with those of the loss that is the sum over
// the ranks.
void expect_as_on_one_rank(at::IntArrayRef shape, const OnEach& each, const OnOneRank& all) {
  const auto weighed = [](const at::Tensor& x) { return (x * x * at::cos(x)).sum(); };
  const auto gradients = [](const at::Tensor& loss, const Tensors& inputs) {
    return torch::autograd::grad({loss}, inputs, {}, true, true);
  };
  Tensors wholes;
  for (int rank = 0; rank < kRanks; ++rank) wholes.push_back(leaf_of(rank, shape));
  const Tensors results = all(wholes);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const at::Tensor& result : results) loss = loss + weighed(result);
  const Tensors first = gradients(loss, wholes);
  at::Tensor steepness = at::zeros({}, at::kDouble);
  for (const at::Tensor& gradient : first) steepness = steepness + weighed(gradient);
  const Tensors second = gradients(steepness, wholes);

  run_impatient(kRanks, [&](World& world) {
    const auto at = static_cast<std::size_t>(world.rank());
    const at::Tensor x = leaf_of(world.rank(), shape);
    const at::Tensor result = each(world.group(), x);
    EXPECT_EQ(difference(result.detach(), results[at].detach()), "");
    const at::Tensor mine = gradients(weighed(result), {x})[0];
    EXPECT_EQ(difference(mine.detach(), first[at].detach()), "");
    const at::Tensor twice = gradients(weighed(mine), {x})[0];
    EXPECT_EQ(difference(twice.detach(), second[at].detach()), "");
  });
}

Tensors on_all(const at::Tensor& result) { return Tensors(kRanks, result); }

TEST(Collectives, AnAllReduceIsItsOwnGradient) {
  expect_as_on_one_rank(
      {4, 3}, [](const Group& group, const at::Tensor& x) { return all_reduce(x, group); },
      [](const Tensors& in) { return on_all(in[0] + in[1] + in[2]); });
  expect_as_on_one_rank(
      {4, 3},
      [](const Group& group, const at::Tensor& x) { return all_reduce(x, group, ReduceOp::Avg); },
      [](const Tensors& in) { return on_all((in[0] + in[1] + in[2]) / 3); });
}

TEST(Collectives, AllGatherAndReduceScatterAreEachOthersGradients) {
  expect_as_on_one_rank(
      {2, 3}, [](const Group& group, const at::Tensor& x) { return all_gather(x, group, 1); },
      [](const Tensors& in) { return on_all(at::cat(in, 1)); });
  expect_as_on_one_rank(
      {6, 2},
      [](const Group& group, const at::Tensor& x) {
        return reduce_scatter(x, group, 0, ReduceOp::Sum, {1, 0, 5});
      },
      [](const Tensors& in) { return (in[0] + in[1] + in[2]).split_with_sizes({1, 0, 5}, 0); });
  expect_as_on_one_rank(
      {6, 2},
      [](const Group& group, const at::Tensor& x) {
        return reduce_scatter(x, group, 0, ReduceOp::Avg);
      },
      [](const Tensors& in) { return ((in[0] + in[1] + in[2]) / 3).split(2, 0); });
}

TEST(Collectives, AnAllToAllIsItsOwnGradientTheOtherWay) {
  expect_as_on_one_rank(
      {6, 2}, [](const Group& group, const at::Tensor& x) { return all_to_all(x, group, 0, 1); },
      [](const Tensors& in) { return at::cat(in, 1).split(2, 0); });
}

TEST(Collectives, TheGradientOfABroadcastComesToItsRoot) {
  expect_as_on_one_rank(
      {2, 3},
      [](const Group& group, const at::Tensor& x) { return broadcast(x, group, 1) + 0 * x; },
      [](const Tensors& in) {
        return Tensors{in[1] + 0 * in[0], in[1] + 0 * in[1], in[1] + 0 * in[2]};
      });
}

TEST(Collectives, APermutationIsUndoneByItsGradient) {
  expect_as_on_one_rank(
      {2, 3},
      [](const Group& group, const at::Tensor& x) { return permute(x, group, {1, 2, -1}) + 0 * x; },
      [](const Tensors& in) { return Tensors{0 * in[0], in[0] + 0 * in[1], in[1] + 0 * in[2]}; });
}

TEST(Collectives, RefuseWhatHasNoGradientAndDTensors) {
  run_impatient(1, [](World& world) {
    const at::Tensor x = leaf({2});
    EXPECT_TRUE(contains(error_of([&] { all_reduce(x, world.group(), ReduceOp::Max); }),
                         "only sums and averages of ranks' tensors have a gradient"));
    EXPECT_EQ(difference(all_reduce(x.detach(), world.group(), ReduceOp::Max), x.detach()), "");
    const at::Tensor d = distribute_tensor(x.detach(), world.mesh({{"a", 1}}), {Replicate()});
    EXPECT_TRUE(contains(error_of([&] { all_reduce(d, world.group()); }),
                         "a collective among ranks takes a plain tensor"));
  });
}

// Inside of local_map -----------------------------------------------------------------------------

TEST(Collectives, InsideALocalMapAReplicatedResultGetsItsGradientOnce) {
  const at::Tensor whole = leaf({6, 4});
  const at::Tensor weight = leaf({4}, 2);
  const at::Tensor plain = (whole * weight).sum().cos() * 3;
  const Tensors want = torch::autograd::grad({plain}, {whole, weight});
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x =
        distribute_tensor(whole.detach(), mesh, {Shard(0)}).set_requires_grad(true);
    const at::Tensor w =
        distribute_tensor(weight.detach(), mesh, {Replicate()}).set_requires_grad(true);
    const Group group = world.group(mesh, "a");
    const StrictMode strict;
    const CommLog log(world);
    const at::Tensor total = local_map(
        [&](const Tensors& t) -> Tensors { return {all_reduce((t[0] * t[1]).sum(), group)}; },
        {x, w}, {{Replicate()}})[0];
    const at::Tensor loss = total.cos() * 3;
    EXPECT_EQ(difference(full_tensor(loss).detach(), plain.detach()), "");
    loss.backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), want[0]), "");
    EXPECT_EQ(difference(full_tensor(w.grad()), want[1]), "");
  });
}

TEST(Collectives, ALocalMapWithoutThemGivesReplicasTheirGradient) {
  const at::Tensor whole = leaf({6, 4});
  const Tensors want = torch::autograd::grad({(whole * whole).sum()}, {whole});
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x =
        distribute_tensor(whole.detach(), mesh, {Replicate()}).set_requires_grad(true);
    const at::Tensor square = local_map([](const Tensors& t) -> Tensors { return {t[0] * t[0]}; },
                                        {x}, {{Replicate()}})[0];
    square.sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), want[0]), "");
    EXPECT_EQ(spec_of(x.grad()).placements(), Placements{Replicate()});
  });
}

// What from_local, to_local and local_map are told ------------------------------------------------

TEST(Claims, AreCheckedWhereTheyAreMade) {
  const EnvironmentVariable check("TEGULA_CHECK", "1");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor mine = at::full({3}, world.rank(), at::kDouble);
    const std::string error = error_of([&] { from_local(mine, mesh, {Replicate()}); });
    EXPECT_TRUE(contains(error, "ranks hold different values")) << error;
    EXPECT_TRUE(contains(error, "from_local")) << error;
    world.recover();
    const auto same = [](const Tensors& t) -> Tensors { return {t[0]}; };
    const at::Tensor x = distribute_tensor(at::arange(4, at::kDouble), mesh, {Shard(0)});
    EXPECT_TRUE(contains(error_of([&] { local_map(same, {x}, {{Replicate()}}); }), "from_local"));
    world.recover();
    const at::Tensor w =
        distribute_tensor(at::ones({3}, at::kDouble), mesh, {Replicate()}).set_requires_grad(true);
    const at::Tensor tile = to_local(w);
    const std::string later = error_of([&] { (tile * (world.rank() + 1)).sum().backward(); });
    EXPECT_TRUE(contains(later, "the gradient of to_local")) << later;
    world.recover();
  });
}

}  // namespace collectives_test
}  // namespace tegula
