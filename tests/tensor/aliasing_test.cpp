// Which tensors share memory, and that nothing else does; in-place operators over lists; operators
// whose result has a shape that depends on the data.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/payload/guards.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace aliasing_test {

const AsPlain kNoGradients{1e-9, 4, true, false, false};

// Whether every rank still holds what it should of x.
void expect_unchanged(const at::Tensor& x, const at::Tensor& tile, const at::Tensor& whole) {
  EXPECT_TRUE(at::equal(to_local(x), tile));
  EXPECT_EQ(difference(full_tensor(x), whole), "");
}

TEST(Aliases, AWriteToARedistributedTensorDoesNotReachItsSource) {
  const at::Tensor plain = numbers({6, 4});
  for (const int ranks : {1, 2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      Random random(3);
      for (int round = 0; round < 60; ++round) {
        const Placements from = some_placements(random, mesh, plain, true);
        const Placements to = some_placements(random, mesh, plain, true);
        const at::Tensor x = distribute_tensor(plain, mesh, from, {std::nullopt, {}});
        if (spec_of(x) == spec_of(x).with_placements(to)) continue;
        SCOPED_TRACE(to_string(mesh) + to_string(from) + " to " + to_string(to));
        const at::Tensor tile = to_local(x).clone();
        const at::Tensor y = redistribute(x, to, round % 2 == 0 ? RedistributeOptions{} : kAsync);
        y.fill_(7);
        expect_unchanged(x, tile, plain);
        const at::Tensor z = redistribute(x, to);
        x.fill_(5);
        EXPECT_EQ(difference(full_tensor(z), plain), "");
      }
      world.group().barrier();
    });
  }
}

TEST(Aliases, RedistributingToTheSamePlacementsIsAnAliasThatAutogradKnows) {
  for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
    run_impatient(3, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      const at::Tensor x = distribute_tensor(leaf({5}), mesh, {placement});
      const at::Tensor y = x * 1;
      const at::Tensor z = y.square();
      const at::Tensor same = redistribute(y, {placement});
      same.mul_(3);
      const bool changed = !at::equal(full_tensor(y.detach()), numbers({5}));
      const std::string text = error_of([&] { z.sum().backward(); });
      EXPECT_EQ(contains(text, "modified by an inplace operation"), changed) << text;
      if (!changed) {
        EXPECT_EQ(difference(full_tensor(x.grad()), numbers({5}) * 2), "");
      }
    });
  }
}

TEST(Aliases, AWriteToFullTensorIsNoticedByAutogradOrReachesNothing) {
  for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
    run_impatient(3, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      const at::Tensor x = distribute_tensor(leaf({5}), mesh, {placement});
      const at::Tensor y = x * 1;
      const at::Tensor z = y.square();
      full_tensor(y.detach()).mul_(3);
      const bool changed = !at::equal(full_tensor(y.detach()), numbers({5}));
      const std::string text = error_of([&] { z.sum().backward(); });
      EXPECT_EQ(contains(text, "modified by an inplace operation"), changed) << text;
    });
  }
}

TEST(Aliases, AWriteToALocalIsNoticedByAutogradOfItsTensor) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor local = at::ones({2}, at::kDouble);
    const at::Tensor w = ones({6}, mesh, {Shard(0)}, at::kDouble).requires_grad_();
    const at::Tensor x = from_local(local, mesh, {Shard(0)});
    const at::Tensor z = w * x;
    local.mul_(3);
    const std::string text = error_of([&] { z.sum().backward(); });
    EXPECT_TRUE(contains(text, "modified by an inplace operation")) << text;
  });
}

TEST(Aliases, FactoriesAndCopiesShareNothing) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Replicate()), Placement(Partial())}) {
      const at::Tensor x = distribute_tensor(numbers({5}), mesh, {placement});
      for (const at::Tensor& copy :
           {x.clone(), x * 1, x + 0, x.to(at::kDouble, false, /*copy=*/true), x.abs(),
            at::empty_like(x), x.detach().clone(), x.view({5}).clone(), x.relu(), at::cat({x})}) {
        copy.fill_(9);
      }
      EXPECT_EQ(difference(full_tensor(x), numbers({5})), "");
    }
  });
}

TEST(Aliases, ViewsThatTwoOpsMakeOfOneReplicaStayViews) {
  expect_as_plain(
      {numbers({6, 4})},
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].clone();
        const at::Tensor a = x.view({24});
        const at::Tensor b = x[2];
        const at::Tensor c = a.slice(0, 4, 20).view({4, 4});
        c.select(1, 0).fill_(1);
        b.mul_(2);
        x.t()[3].add_(a[0]);
        a.masked_fill_(a > 1.5, 0);
        return {x, a, b, c};
      },
      kNoGradients);
}

TEST(Aliases, AViewOutlivesItsBase) {
  expect_as_plain({leaf({6, 4})}, [](const Tensors& in) -> Tensors {
    at::Tensor row;
    {
      const at::Tensor x = in[0] * 2;
      row = x[5];
    }
    row.mul_(3);
    return {row};
  });
}

TEST(Aliases, SelfAsAnArgumentOfItsOwnInPlaceOpIsReadBefore) {
  expect_as_plain({leaf({4, 4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    x.add_(x);
    x.mul_(x.sum());
    const at::Tensor y = in[0].clone();
    y[0].add_(y[1]).mul_(y[2].detach().clone());
    y.select(1, 3).copy_(y.select(1, 0));
    return {x, y};
  });
}

// --- lists

TEST(Lists, InPlaceOpsOverListsWriteEveryMember) {
  expect_as_plain(
      {numbers({5, 3}), numbers({4}, 2), numbers({2, 2}, 3)},
      [](const Tensors& in) -> Tensors {
        const Tensors x = {in[0].clone(), in[1].clone(), in[2].clone()};
        at::_foreach_add_(x, 1.5);
        at::_foreach_mul_(x, in);
        at::_foreach_addcdiv_(x, in, in, 0.5);
        at::_foreach_sqrt_(at::_foreach_abs(x));
        at::_foreach_zero_(Tensors{x[1][2]});
        Tensors results = at::_foreach_norm(x);
        for (const at::Tensor& one : at::_foreach_mul(x, 2)) results.push_back(one);
        results.insert(results.end(), x.begin(), x.end());
        return results;
      },
      kNoGradients);
}

TEST(Lists, ViewsOfOneTensorInAListMeet) {
  expect_as_plain(
      {numbers({5, 3})},
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].clone();
        at::_foreach_add_({x[0], x[3], x.slice(0, 1, 3)}, 1);
        at::_foreach_mul_({x[0], x.select(1, 1)}, 2);
        return {x};
      },
      kNoGradients);
}

TEST(Lists, FusedStepsOfOptimizersAreRight) {
  expect_as_plain(
      {numbers({5, 3}), numbers({5, 3}, 2), numbers({5, 3}, 3), numbers({5, 3}, 4).abs()},
      [](const Tensors& in) -> Tensors {
        const at::Tensor parameter = in[0].clone();
        const at::Tensor average = in[2].clone();
        const at::Tensor square = in[3].clone();
        const at::Tensor step = at::full({}, 3.0);
        at::_fused_adamw_({parameter}, {in[1].clone()}, {average}, {square}, {}, {step}, 0.1, 0.9,
                          0.99, 0.01, 1e-8, false, false);
        return {parameter, average, square};
      },
      kNoGradients);
}

TEST(Lists, OptionalMembersMayBeMissing) {
  const at::Tensor index = at::tensor(std::vector<std::int64_t>{2, 0}, at::kLong);
  expect_as_plain({leaf({4, 3}), index},
                  [](const Tensors& in) -> Tensors {
                    using at::indexing::Slice;
                    using at::indexing::None;
                    at::Tensor x = in[0].clone();
                    x.index_put_({Slice(), in[1]}, in[0].index({Slice(), in[1]}) * 2);
                    return {x, in[0].index({Slice(), in[1]}), in[0].index({in[1], Slice(1)}),
                            in[0].index({None, in[1]}), in[0].index({"...", 1})};
                  },
                  {1e-9, 4, false, false, true});
}

// --- in-place operators that write some elements

TEST(Writes, ToChosenElementsLand) {
  const at::Tensor index = at::tensor(std::vector<std::int64_t>{3, 0}, at::kLong);
  expect_as_plain({leaf({5, 3}), leaf({2, 3}, 2), index},
                  [](const Tensors& in) -> Tensors {
                    const auto fresh = [&] { return in[0].clone(); };
                    const at::Tensor rows = in[2].unsqueeze(1).expand({2, 3});
                    const at::Tensor mask = in[0].detach() > 0;
                    return {fresh().index_copy_(0, in[2], in[1]),
                            fresh().index_fill_(0, in[2], 7),
                            fresh().index_add_(0, in[2], in[1]),
                            fresh().scatter_(0, rows, in[1]),
                            fresh().scatter_(0, rows, 4.0),
                            fresh().scatter_reduce_(0, rows, in[1], "amax"),
                            fresh().masked_scatter_(mask, in[0] * 2),
                            fresh().fill_diagonal_(1),
                            fresh().put_(in[2], in[1].select(1, 0)),
                            fresh().tril_(),
                            fresh().clamp_(-1, 1),
                            fresh().addmm_(in[0], in[1].t().mm(in[1])),
                            fresh().zero_(),
                            fresh().copy_(in[0][1]),
                            fresh().renorm_(2, 0, 0.5)};
                  },
                  {1e-9, 4, false, false, true});
}

// --- shapes that depend on the data

TEST(DataDependentShapes, AreTheSameOnAllRanks) {
  const at::Tensor whole = at::tensor(std::vector<std::int64_t>{3, 1, 3, 0, 7, 1, 1}, at::kLong);
  expect_as_plain({numbers({7}), whole},
                  [](const Tensors& in) -> Tensors {
                    const auto [values, inverse, counts] = at::_unique2(in[1], true, true, true);
                    return {values,
                            inverse,
                            counts,
                            at::nonzero(in[0] > 0),
                            in[0].masked_select(in[0] > 0),
                            at::bincount(in[1]),
                            at::histc(in[0], 5, -2, 2),
                            at::searchsorted(std::get<0>(in[0].sort()), in[0]),
                            at::argwhere(in[1] == 1),
                            at::repeat_interleave(in[0], in[1]),
                            std::get<0>(at::unique_consecutive(in[1])),
                            at::isin(in[1], values),
                            at::combinations(in[0])};
                  },
                  {1e-9, 4, false, false, false});
}

// --- errors of libtorch

TEST(Errors, OfLibtorchComeOnAllRanksAndLeaveTheTensorsUsable) {
  for (const int ranks : {2, 3}) {
    run_impatient(ranks, [](World& world) {
      const at::Tensor x = distribute_tensor(numbers({5, 3}), usual_mesh(world), {Shard(0)});
      for (const auto& call : std::vector<std::function<void()>>{
               [&] { at::mm(x, x); }, [&] { x.view({4, 4}); }, [&] { x.select(0, 9); },
               [&] { x.add_(x.t()); }, [&] { at::cat({x, x.t()}); }, [&] { x.sum(5); },
               [&] { x.permute({0}); }, [&] { x.expand({5, 4}); }, [&] { at::inverse(x); },
               [&] { x.index_select(0, at::full_like(x, 9).to(at::kLong).view({15})); },
               [&] { at::linalg_cholesky(at::mm(x.t(), x).neg()); }, [&] { x.item(); },
               [&] { x.squeeze_(7); }, [&] { x.split(-1); }}) {
        EXPECT_NE(error_of(call), "nothing was thrown");
      }
      EXPECT_EQ(difference(full_tensor(x * 2), numbers({5, 3}) * 2), "");
    });
  }
}

TEST(Errors, TensorsWithoutADistributedFormAreRefused) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4, 4}, mesh, {Shard(0)});
    const at::Tensor sparse = at::ones({4, 4}).to_sparse();
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { x.to_sparse(); },
             [&] {
               const ImplicitReplication guard;
               at::mm(sparse, x);
             },
             [&] { distribute_tensor(sparse, mesh, {Shard(0)}); },
             [&] { from_local(sparse, mesh, {Shard(0)}); },
             [&] { at::quantize_per_tensor(x, 0.1, 0, at::kQInt8); }}) {
      const std::string text = error_of(call);
      EXPECT_TRUE(contains(text, "tegula:")) << text;
    }
  });
}

}  // namespace aliasing_test
}  // namespace tegula
