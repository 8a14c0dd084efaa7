// Where a tensor without storage could disappoint autograd, one test each: views and in-place,
// leaves and their hooks, version counters, functions of the user, double backward.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tegula/payload/guards.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace autograd_test {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const AsPlain kNoPartial{1e-9, 6, false, false, true};

// The ranks 2, 3 and 2x2 with a leaf placed in all of the usual ways.
void with_leaves(const at::Tensor& plain, const std::function<void(const at::Tensor& leaf)>& body) {
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(plain.dim() - 1)),
                                         Placement(Replicate()), Placement(Partial())}) {
        const Placements placements(mesh.ndim(), placement);
        SCOPED_TRACE(to_string(mesh) + to_string(placements));
        body(distribute_tensor(plain, mesh, placements, {std::nullopt, {}}).requires_grad_());
      }
    });
  }
}

// --- views, in-place writes and gradients

TEST(ViewGradients, AWriteThroughAViewChangesTheGradientOfTheBase) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> views = {
      [](const at::Tensor& x) { return x.view({3, 8}); },
      [](const at::Tensor& x) { return x.view({24}); },
      [](const at::Tensor& x) { return x.t(); },
      [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); },
      [](const at::Tensor& x) { return x.slice(0, 1, 5); },
      [](const at::Tensor& x) { return x.slice(0, 1, 6, 2); },
      [](const at::Tensor& x) { return x.slice(1, 1, 3).slice(0, 2, 5); },
      [](const at::Tensor& x) { return x[2]; },
      [](const at::Tensor& x) { return x.select(1, 3); },
      [](const at::Tensor& x) { return x.diagonal(); },
      [](const at::Tensor& x) { return x.view({2, 3, 4}).permute({2, 0, 1})[1]; },
      [](const at::Tensor& x) { return x.unfold(0, 2, 2); },
      [](const at::Tensor& x) { return x.narrow(1, 0, 2).t(); },
      [](const at::Tensor& x) { return x.reshape({2, 12}).slice(1, 5, 11); },
      [](const at::Tensor& x) { return x.view_as(x); },
  };
  for (const auto& view : views) {
    expect_as_plain({leaf({6, 4}), leaf({6, 4}, 2)},
                    [&](const Tensors& in) -> Tensors {
                      const at::Tensor x = in[0] * 1;
                      const at::Tensor part = view(x);
                      part.mul_(view(in[1]));
                      part.add_(part.detach().sum());
                      return {x, part, x * x, view(x).sin()};
                    },
                    {1e-9, 3, true, false, true});
  }
}

TEST(ViewGradients, AWriteToTheBaseChangesTheGradientOfTheView) {
  expect_as_plain({leaf({6, 4}), leaf({6, 4}, 2)}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 1;
    const at::Tensor row = x[1];
    const at::Tensor rows = x.slice(0, 2, 5);
    const at::Tensor turned = x.t();
    x.mul_(in[1]);
    return {row * 3, rows.sin(), turned * turned};
  });
}

TEST(ViewGradients, AWriteThroughOneViewIsSeenByAnother) {
  expect_as_plain({leaf({6, 4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 1;
    const at::Tensor upper = x.slice(0, 0, 4);
    const at::Tensor lower = x.slice(0, 2, 6);
    upper.mul_(2);
    lower.add_(upper[0]);
    upper.select(1, 0).copy_(lower.select(1, 1));
    return {x, upper, lower};
  });
}

TEST(ViewGradients, OverwrittenElementsGetNoGradient) {
  expect_as_plain({leaf({5, 3}), leaf({2, 3}, 2)}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] * 1;
    x.slice(0, 1, 3).copy_(in[1]);
    x.select(1, 2).zero_();
    return {x * x};
  });
}

TEST(ViewGradients, PartsOfASplitHaveGradients) {
  expect_as_plain({leaf({5, 6})}, [](const Tensors& in) -> Tensors {
    const std::vector<at::Tensor> thirds = in[0].chunk(3, -1);
    const std::vector<at::Tensor> rows = in[0].unbind(0);
    const std::vector<at::Tensor> pieces = in[0].split_with_sizes({1, 3, 1}, 0);
    return {thirds[0] * thirds[1] + thirds[2], rows[4] * rows[0], pieces[1].sin(),
            at::cat({thirds[2], thirds[0]}, 1), at::stack(rows, 1)};
  });
}

TEST(ViewGradients, ALeafThatNeedsGradRefusesAWriteThroughAView) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    EXPECT_TRUE(contains(error_of([&] { x.mul_(2); }), "leaf Variable"));
    EXPECT_TRUE(contains(error_of([&] { x.slice(0, 0, 2).mul_(2); }), "leaf Variable"));
  });
}

TEST(ViewGradients, UnderNoGradALeafCanBeWrittenThroughAView) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    {
      const at::NoGradGuard no_grad;
      x.slice(0, 1, 4).zero_();
      x[4].fill_(1);
    }
    const at::Tensor want = numbers({5, 3});
    want.slice(0, 1, 4).zero_();
    want[4].fill_(1);
    EXPECT_EQ(difference(full_tensor(x.detach()), want), "");
    EXPECT_TRUE(x.is_leaf());
    EXPECT_TRUE(x.requires_grad());
  });
}

// --- leaves

Placements gradient_placements(const at::Tensor& x) {
  Placements placements = placements_of(x);
  for (Placement& placement : placements) {
    if (owed_reduction(placement)) placement = Replicate();
  }
  return placements;
}

TEST(Leaves, TheGradientArrivesInThePlacementOfTheLeaf) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    at::matmul(x.t(), x).sum().backward();
    const at::Tensor want = leaf({5, 3});
    at::matmul(want.t(), want).sum().backward();
    ASSERT_TRUE(is_dtensor(x.grad()));
    EXPECT_EQ(to_string(placements_of(x.grad())), to_string(gradient_placements(x)));
    EXPECT_EQ(difference(full_tensor(x.grad()), want.grad()), "");
  });
}

TEST(Leaves, AskedForByGradTheGradientIsPlacedToo) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor loss = x.sin().sum();
    const variable_list grads = torch::autograd::grad({loss}, {x});
    EXPECT_FALSE(x.grad().defined());
    ASSERT_TRUE(is_dtensor(grads[0]));
    EXPECT_EQ(to_string(placements_of(grads[0])), to_string(gradient_placements(x)));
    EXPECT_EQ(difference(full_tensor(grads[0]), numbers({5, 3}).cos()), "");
  });
}

TEST(Leaves, GradientsAccumulate) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    x.sin().sum().backward();
    (x * x).sum().backward();
    x[1].sum().backward();
    const at::Tensor plain = numbers({5, 3});
    const at::Tensor want = plain.cos() + 2 * plain;
    want[1].add_(1);
    EXPECT_EQ(difference(full_tensor(x.grad()), want), "");
    EXPECT_EQ(to_string(placements_of(x.grad())), to_string(gradient_placements(x)));
    x.mutable_grad().zero_();
    EXPECT_EQ(full_tensor(x.grad()).abs().sum().item<double>(), 0);
    x.mutable_grad() = at::Tensor();
    x.sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), at::ones({5, 3}, at::kDouble)), "");
  });
}

TEST(Leaves, OneThatIsUsedOnSeveralPathsGetsTheSum) {
  expect_as_plain({leaf({5, 3}), leaf({3, 5}, 2)}, [](const Tensors& in) -> Tensors {
    const at::Tensor a = in[0] * 2;
    return {at::matmul(a, in[1]) + at::matmul(in[0], in[1]), in[0].sum(0), a[1] * in[0][3],
            in[1].t() + in[0], in[0] + in[0]};
  });
}

TEST(Leaves, ARetainedGradientIsADTensorOfTheRightValue) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    y.retain_grad();
    y.sin().sum().backward();
    ASSERT_TRUE(y.grad().defined());
    ASSERT_TRUE(is_dtensor(y.grad()));
    EXPECT_EQ(difference(full_tensor(y.grad()), (numbers({5, 3}) * 2).cos()), "");
  });
}

TEST(Leaves, HooksOfTheUserAreCalledAndMayChangeTheGradient) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    int calls = 0;
    x.register_hook([&](const at::Tensor& grad) {
      ++calls;
      EXPECT_TRUE(is_dtensor(grad));
      return grad * 10;
    });
    const at::Tensor y = x * 2;
    y.register_hook([&](const at::Tensor&) { ++calls; });
    y.sum().backward();
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(difference(full_tensor(x.grad()), at::full({5, 3}, 20.0, at::kDouble)), "");
    EXPECT_EQ(to_string(placements_of(x.grad())), to_string(gradient_placements(x)));
  });
}

TEST(Leaves, ARemovedHookIsNotCalled) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    x.sum().backward();
    int calls = 0;
    const auto hook = x.register_hook([&](const at::Tensor&) { ++calls; });
    x.sum().backward();
    x.remove_hook(hook);
    x.sum().backward();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(difference(full_tensor(x.grad()), at::full({5, 3}, 3.0, at::kDouble)), "");
    EXPECT_EQ(to_string(placements_of(x.grad())), to_string(gradient_placements(x)));
  });
}

TEST(Leaves, AGradientOfTheUserIsTaken) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    y.backward(at::full_like(y, 3).detach());
    EXPECT_EQ(difference(full_tensor(x.grad()), at::full({5, 3}, 6.0, at::kDouble)), "");
    const at::Tensor plain_gradient = numbers({5, 3}, 3);
    const variable_list grads = torch::autograd::grad({x * 2}, {x}, {plain_gradient});
    EXPECT_EQ(difference(full_tensor(grads[0]), plain_gradient * 2), "");
  });
}

TEST(Leaves, AnUnusedOneHasNoGradient) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor other = at::zeros_like(x.detach()).requires_grad_();
    const variable_list grads = torch::autograd::grad({x.sum()}, {x, other}, {}, std::nullopt,
                                                      false, /*allow_unused=*/true);
    EXPECT_TRUE(grads[0].defined());
    EXPECT_FALSE(grads[1].defined());
  });
}

TEST(Leaves, AMixOfLeavesOnDifferentMeshesGetsGradientsOnTheirOwn) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(numbers({5, 3}), mesh, {Shard(0), Shard(1)});
    const at::Tensor w = distribute_tensor(numbers({3, 4}, 2), mesh["b"], {Shard(1)});
    x.requires_grad_();
    w.requires_grad_();
    at::mm(x, w).sin().sum().backward();
    const at::Tensor a = leaf({5, 3});
    const at::Tensor b = leaf({3, 4}, 2);
    at::mm(a, b).sin().sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), a.grad()), "");
    EXPECT_EQ(difference(full_tensor(w.grad()), b.grad()), "");
    EXPECT_TRUE(mesh_of(w.grad()) == mesh_of(w));
    EXPECT_EQ(to_string(placements_of(w.grad())), "[S(1)]");
  });
}

TEST(Leaves, WrittenByAnOptimizerLikeStepTheyGoOn) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor want = leaf({5, 3});
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& parameter : {x, want}) {
        parameter.sin().mul(parameter).sum().backward();
        const at::NoGradGuard no_grad;
        parameter.add_(parameter.grad(), -0.1);
        parameter.mutable_grad() = at::Tensor();
      }
    }
    EXPECT_EQ(difference(full_tensor(x.detach()), want.detach()), "");
  });
}

// --- version counters

TEST(Versions, AWriteThroughToLocalIsNoticedByBackward) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
      const at::Tensor x = distribute_tensor(numbers({5}), mesh, {placement}).requires_grad_();
      const at::Tensor y = x * 1;
      const at::Tensor z = y.square();
      to_local(y.detach()).mul_(2);
      const std::string text = error_of([&] { z.sum().backward(); });
      EXPECT_TRUE(contains(text, "modified by an inplace operation")) << text;
    }
  });
}

TEST(Versions, AWriteThroughAViewIsNoticedByBackward) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor y = x * 1;
    const at::Tensor z = y.square();
    y.detach()[4].fill_(1);
    const std::string text = error_of([&] { z.sum().backward(); });
    EXPECT_TRUE(contains(text, "modified by an inplace operation")) << text;
  });
}

TEST(Versions, CountWritesAsPlainTensorsDo) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const auto versions = [](const at::Tensor& tensor) {
      std::vector<std::int64_t> seen{tensor._version()};
      tensor.mul_(2);
      seen.push_back(tensor._version());
      tensor.slice(0, 0, 2).add_(1);
      seen.push_back(tensor._version());
      tensor.t()[0].zero_();
      seen.push_back(tensor._version());
      at::Tensor out = tensor;
      at::sin_out(out, out);
      seen.push_back(tensor._version());
      return seen;
    };
    EXPECT_EQ(versions(x.detach().clone()), versions(numbers({5, 3}).clone()));
  });
}

TEST(Versions, ToLocalSharesMemory) {
  run_impatient(3, [](World& world) {
    const at::Tensor x = zeros({5}, usual_mesh(world), {Shard(0)});
    to_local(x).fill_(world.rank() + 1);
    EXPECT_EQ(difference(full_tensor(x), at::tensor({1.f, 1.f, 2.f, 2.f, 3.f})), "");
    x.mul_(2);
    if (to_local(x).numel() > 0) {
      EXPECT_EQ(to_local(x)[0].item<float>(), 2.f * static_cast<float>(world.rank() + 1));
    }
  });
}

// --- functions of the user, double backward, modes

struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {grads[0] * 3 * x * x};
  }
};

TEST(UserFunctions, HaveTheirOwnGradient) {
  expect_as_plain({leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    return {Cube::apply(in[0]), Cube::apply(in[0].slice(0, 1, 4) * 2)};
  });
}

TEST(UserFunctions, CanBeDifferentiatedTwice) {
  expect_as_plain({leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    const variable_list first = torch::autograd::grad({Cube::apply(in[0]).sum()}, {in[0]}, {},
                                                      std::nullopt, /*create_graph=*/true);
    return {first[0].square()};
  });
}

struct TwoResults : torch::autograd::Function<TwoResults> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                               double factor) {
    context->save_for_backward({x, y});
    context->saved_data["factor"] = factor;
    const at::Tensor sign = x.sign();
    context->mark_non_differentiable({sign});
    return {x * y * factor, sign};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const double factor = context->saved_data["factor"].toDouble();
    return {grads[0] * saved[1] * factor, (grads[0] * saved[0] * factor).sum(0), at::Tensor()};
  }
};

TEST(UserFunctions, MayHaveSeveralInputsAndResults) {
  expect_as_plain({leaf({5, 3}), leaf({3}, 2)}, [](const Tensors& in) -> Tensors {
    return TwoResults::apply(in[0], in[1], 1.5);
  });
}

// Forgets what lies between input and output and computes it again in backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor block(const at::Tensor& x, const at::Tensor& w) {
    return at::matmul(x, w).relu().softmax(-1);
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    const at::NoGradGuard no_grad;
    return block(x, w);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x = saved[0].detach().requires_grad_();
    const at::Tensor w = saved[1].detach().requires_grad_();
    at::Tensor y;
    {
      const at::AutoGradMode recording(true);
      y = block(x, w);
    }
    torch::autograd::backward({y}, {grads[0]});
    return {x.grad(), w.grad()};
  }
};

TEST(UserFunctions, MayComputeAgainWhatTheyForgot) {
  expect_as_plain({leaf({5, 3}), leaf({3, 4}, 2)}, [](const Tensors& in) -> Tensors {
    return {Recomputed::apply(in[0] * 2, in[1]) * 3};
  });
}

TEST(DoubleBackward, IsRight) {
  expect_as_plain({leaf({5, 3}), leaf({3, 4}, 2)}, [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::matmul(in[0], in[1]).tanh().softmax(0).pow(2).sum();
    const variable_list first =
        torch::autograd::grad({y}, {in[0], in[1]}, {}, std::nullopt, /*create_graph=*/true);
    return {first[0].square().sum() + first[1].sin().sum()};
  });
}

TEST(DoubleBackward, GoesThroughMovesBetweenPlacements) {
  expect_as_plain({leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0] * in[0];
    if (is_dtensor(x)) {
      x = redistribute(x, Placements(mesh_of(x).ndim(), Shard(1)));
      x = from_local(to_local(x), mesh_of(x), placements_of(x));
    }
    const variable_list first = torch::autograd::grad({x.sin().sum()}, {in[0]}, {}, std::nullopt,
                                                      /*create_graph=*/true);
    return {first[0].square()};
  });
}

TEST(Modes, NothingIsRecordedUnderNoGrad) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE((x * 2).requires_grad());
    EXPECT_EQ(x.slice(0, 1, 3).requires_grad(), leaf({5, 3}).slice(0, 1, 3).requires_grad());
    EXPECT_FALSE((x.slice(0, 1, 3) * 2).requires_grad());
    EXPECT_FALSE(redistribute(x, Placements(mesh_of(x).ndim(), Replicate())).requires_grad());
    EXPECT_FALSE(full_tensor(x).requires_grad());
    EXPECT_FALSE(to_local(x).requires_grad());
    EXPECT_TRUE(x.requires_grad());
  });
}

TEST(Modes, DetachEndsTheHistoryAndSharesMemory) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    const at::Tensor z = y.detach();
    EXPECT_FALSE(z.requires_grad());
    EXPECT_TRUE(is_dtensor(z));
    z.zero_();
    EXPECT_EQ(full_tensor(y.detach()).abs().sum().item<double>(), 0);
  });
}

TEST(Modes, InBackwardPlainTensorsOfTheUserAreReplicas) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    x.register_hook([](const at::Tensor& grad) { return grad + at::ones({5, 3}, at::kDouble); });
    x.sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), at::full({5, 3}, 2.0, at::kDouble)), "");
    EXPECT_FALSE(ImplicitReplication::is_on());
  });
}

TEST(Modes, AnErrorInBackwardLeavesNothingBehind) {
  with_leaves(numbers({5, 3}), [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    y.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("a hook"); });
    EXPECT_TRUE(contains(error_of([&] { y.sum().backward(); }), "a hook"));
    EXPECT_FALSE(ImplicitReplication::is_on());
    EXPECT_TRUE(contains(error_of([&] { x + at::ones({400, 5, 3}, at::kDouble); }), "plain"));
    x.sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), at::ones({5, 3}, at::kDouble)), "");
  });
}

}  // namespace autograd_test
}  // namespace tegula
