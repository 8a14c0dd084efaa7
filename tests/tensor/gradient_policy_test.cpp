// When the reductions that gradients owe are done: now, while backward goes on, or later on
// request.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tegula/gradient/gradients.h"
#include "tegula/payload/payload.h"
#include "tegula/tensor/module.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula::inner {
namespace gradient_policy_test {

constexpr GradientReduction kNow = GradientReduction::Now;
constexpr GradientReduction kAsync = GradientReduction::Async;
constexpr GradientReduction kHold = GradientReduction::Hold;

// A linear layer on a dp x tp mesh: the batch is cut over dp, the weight over tp.
struct Layer {
  explicit Layer(World& world)
      : mesh(world.mesh({{"dp", 2}, {"tp", 2}})),
        weight(distribute_tensor(numbers({6, 4}, 1), mesh, {Replicate(), Shard(0)})),
        bias(distribute_tensor(numbers({6}, 2), mesh, {Replicate(), Replicate()})),
        x(distribute_tensor(numbers({8, 4}, 3), mesh, {Shard(0), Replicate()})) {
    weight.set_requires_grad(true);
    bias.set_requires_grad(true);
  }
  at::Tensor loss() const { return at::linear(x, weight, bias).pow(2).sum(); }
  Tensors leaves() const { return {weight, bias}; }

  DeviceMesh mesh;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor x;
};

Tensors plain_gradients(int passes) {
  const at::Tensor weight = numbers({6, 4}, 1).requires_grad_();
  const at::Tensor bias = numbers({6}, 2).requires_grad_();
  for (int pass = 0; pass < passes; ++pass) {
    at::linear(numbers({8, 4}, 3), weight, bias).pow(2).sum().backward();
  }
  return {weight.grad(), bias.grad()};
}

void expect_gradients(const Layer& layer, int passes) {
  const Tensors want = plain_gradients(passes);
  EXPECT_EQ(difference(full_tensor(layer.weight.grad()), want[0]), "");
  EXPECT_EQ(difference(full_tensor(layer.bias.grad()), want[1]), "");
}

void on_four_ranks(const std::function<void(World&, Layer&)>& body) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  run_impatient(4, [&](World& world) {
    Layer layer(world);
    body(world, layer);
  });
}

// After the gradients of the leaves have come.
void expect_a_pass_to_fail(const Layer& layer) {
  const at::Tensor early =
      distribute_tensor(numbers({8, 4}, 3), layer.mesh, {Shard(0), Replicate()}).requires_grad_() *
      1.0;
  early.register_hook([](const at::Tensor& grad) -> at::Tensor {
    if (grad.defined()) throw std::runtime_error("a hook fails on all ranks");
    return grad;
  });
  EXPECT_THROW(at::linear(early, layer.weight, layer.bias).pow(2).sum().backward(),
               std::runtime_error);
}

TEST(GradientPolicy, IsPrintedAsItIsRead) {
  for (const char* text : {"now", "async", "hold", "hold over dp, else now",
                           "hold over dp, async over tp, else now", "now over tp, else hold"}) {
    EXPECT_EQ(to_string(parse_gradient_policy(text)), text);
  }
  EXPECT_EQ(to_string(GradientPolicy({{"dp", kHold}, {"tp", kNow}})), "hold over dp, else now");
  for (const char* text : {"", "later", "hold dp", "hold over dp,", "now, async", "else now, now",
                           "hold over dp, now over dp"}) {
    EXPECT_TRUE(contains(error_of([&] { parse_gradient_policy(text); }), "cannot be read")) << text;
  }
}

TEST(GradientPolicy, EveryPolicyGivesTheGradientsOfAPlainPass) {
  for (const char* text : {"now", "async", "async over dp, else now", "async over tp, else now"}) {
    on_four_ranks([&](World&, Layer& layer) {
      for (const at::Tensor& leaf : layer.leaves()) {
        set_gradient_policy(leaf, parse_gradient_policy(text));
      }
      for (int pass = 1; pass <= 3; ++pass) {
        layer.loss().backward();
        expect_gradients(layer, pass);
        EXPECT_EQ(placements_of(layer.weight.grad()), (Placements{Replicate(), Shard(0)})) << text;
        EXPECT_EQ(placements_of(layer.bias.grad()), (Placements{Replicate(), Replicate()})) << text;
      }
    });
  }
}

TEST(GradientPolicy, AHeldSumAddsUpOverPassesAndIsPaidOnce) {
  on_four_ranks([](World& world, Layer& layer) {
    const GradientPolicyGuard guard{GradientPolicy({{"dp", kHold}})};
    const CommLog log(world);
    for (int pass = 0; pass < 3; ++pass) layer.loss().backward();
    for (const CommEntry& entry : log.entries()) EXPECT_EQ(entry.axis, "tp") << log.to_string();
    EXPECT_EQ(placements_of(layer.weight.grad()), (Placements{Partial(ReduceOp::Sum), Shard(0)}));
    const CommLog paying(world);
    reduce_gradients(layer.leaves());
    EXPECT_EQ(paying.size(), 1U) << paying.to_string();
    EXPECT_EQ(paying.entries().front().tensors, 2) << paying.to_string();
    EXPECT_EQ(placements_of(layer.weight.grad()), (Placements{Replicate(), Shard(0)}));
    expect_gradients(layer, 3);
    const CommLog nothing_owed(world);
    reduce_gradients(layer.leaves());
    EXPECT_TRUE(nothing_owed.empty()) << nothing_owed.to_string();
  });
}

// Micro-batches: all passes but the last hold, and the last pays for all.
TEST(GradientPolicy, WhatWasHeldIsPaidWithTheFirstPassThatDoesNotHold) {
  for (const GradientReduction last : {kNow, kAsync}) {
    on_four_ranks([&](World& world, Layer& layer) {
      for (int pass = 0; pass < 2; ++pass) {
        const GradientPolicyGuard hold{GradientPolicy({{"dp", kHold}})};
        layer.loss().backward();
      }
      const GradientPolicyGuard guard{last};
      const CommLog log(world);
      layer.loss().backward();
      std::size_t over_dp = 0;
      for (const CommEntry& entry : log.entries()) over_dp += entry.axis == "dp" ? 1 : 0;
      EXPECT_LE(over_dp, 3U) << log.to_string();  // weight, bias, loss
      EXPECT_EQ(placements_of(layer.weight.grad()), (Placements{Replicate(), Shard(0)}));
      expect_gradients(layer, 3);
    });
  }
}

TEST(GradientPolicy, WhatWasHeldIsThereAgainIfThePassThatWouldPayFails) {
  on_four_ranks([](World&, Layer& layer) {
    {
      const GradientPolicyGuard hold{GradientPolicy({{"dp", kHold}})};
      layer.loss().backward();
    }
    const at::Tensor held = layer.weight.grad();
    expect_a_pass_to_fail(layer);
    EXPECT_EQ(placements_of(layer.weight.grad()), (Placements{Partial(ReduceOp::Sum), Shard(0)}));
    EXPECT_EQ(difference(full_tensor(layer.weight.grad()), full_tensor(held)), "");
  });
}

TEST(GradientPolicy, AGuardOutranksTheLeaf) {
  on_four_ranks([](World&, Layer& layer) {
    set_gradient_policy(layer.weight, kHold);
    {
      const GradientPolicyGuard guard{kNow};
      layer.loss().backward();
    }
    EXPECT_EQ(placements_of(layer.weight.grad()), (Placements{Replicate(), Shard(0)}));
    layer.weight.mutable_grad() = at::Tensor();
    layer.loss().backward();
    EXPECT_EQ(placements_of(layer.weight.grad()), (Placements{Partial(ReduceOp::Sum), Shard(0)}));
  });
}

TEST(GradientPolicy, WhatIsSaidForAModuleOutranksItsParameters) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    torch::nn::Linear layer(4, 6);
    distribute_module(*layer, mesh);
    set_gradient_policy(*layer, kHold);
    set_gradient_policy(layer->weight, kNow);
    const at::Tensor x = distribute_tensor(at::ones({8, 4}), mesh, {Shard(0)});
    layer->forward(x).sum().backward();
    EXPECT_EQ(placements_of(layer->weight.grad()), (Placements{Partial(ReduceOp::Sum)}));
    reduce_gradients(layer->parameters());
    EXPECT_EQ(placements_of(layer->weight.grad()), (Placements{Replicate()}));
    EXPECT_EQ(difference(full_tensor(layer->weight.grad()), at::full({6, 4}, 8.0F)), "");
  });
}

// A hook on an earlier tensor runs after the weight's gradient is stored: by then its reduction has
// been started and nobody has waited for it.
TEST(GradientPolicy, AnAsyncReductionIsNotWaitedForBeforeBackwardEnds) {
  for (const bool has_gradient : {false, true}) {
    on_four_ranks([&](World& world, Layer& layer) {
      const GradientPolicyGuard guard{kAsync};
      if (has_gradient) layer.loss().backward();
      const at::Tensor first =
          distribute_tensor(numbers({8, 4}, 3), layer.mesh, {Shard(0), Replicate()})
              .requires_grad_();
      bool is_under_way = false;
      const at::Tensor early = first * 1.0;
      early.register_hook([&](const at::Tensor& grad) {
        const at::Tensor stored = layer.bias.grad();
        is_under_way = stored.defined() && payload_in(stored)->tile_at_hand() == nullptr;
        return grad;
      });
      at::linear(early, layer.weight, layer.bias).pow(2).sum().backward();
      EXPECT_TRUE(is_under_way);
      expect_gradients(layer, has_gradient ? 2 : 1);
      world.group().barrier();
    });
  }
}

TEST(GradientPolicy, APassThatFailsLeavesTheGradientsThatWereThere) {
  on_four_ranks([](World& world, Layer& layer) {
    layer.loss().backward();
    const GradientPolicyGuard guard{kAsync};
    expect_a_pass_to_fail(layer);
    expect_gradients(layer, 1);
    world.group().barrier();
  });
}

TEST(GradientPolicy, WithCreateGraphReductionsAreDoneNow) {
  for (const GradientReduction reduction : {kAsync, kHold}) {
    on_four_ranks([&](World&, Layer& layer) {
      const GradientPolicyGuard guard{reduction};
      const auto grads = torch::autograd::grad({layer.loss()}, {layer.weight}, {}, true, true);
      EXPECT_EQ(placements_of(grads[0]), (Placements{Replicate(), Shard(0)}));
      const auto second = torch::autograd::grad({grads[0].pow(2).sum()}, {layer.weight});
      const at::Tensor weight = numbers({6, 4}, 1).requires_grad_();
      const at::Tensor loss = at::linear(numbers({8, 4}, 3), weight, numbers({6}, 2)).pow(2).sum();
      const auto plain = torch::autograd::grad({loss}, {weight}, {}, true, true);
      const auto want = torch::autograd::grad({plain[0].pow(2).sum()}, {weight});
      EXPECT_EQ(difference(full_tensor(second[0]), want[0]), "");
    });
  }
}

TEST(GradientPolicy, GradientsThatAreAskedForAreReturned) {
  for (const GradientReduction reduction : {kNow, kAsync, kHold}) {
    on_four_ranks([&](World&, Layer& layer) {
      layer.loss().backward();
      const GradientPolicyGuard guard{reduction};
      const auto grads = torch::autograd::grad({layer.loss()}, {layer.weight});
      EXPECT_EQ(difference(full_tensor(grads[0]), plain_gradients(1)[0]), "");
      expect_gradients(layer, 1);  // what was stored stays
    });
  }
}

TEST(GradientPolicy, OneRankMayReadAGradientsTile) {
  on_four_ranks([](World& world, Layer& layer) {
    const GradientPolicyGuard guard{kAsync};
    layer.loss().backward();
    if (world.rank() == 0) to_local(layer.weight.grad()).sum().item<double>();
    layer.loss().backward();
    expect_gradients(layer, 2);
  });
}

TEST(GradientPolicy, ViewsOfALeafCarryItOn) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({4, 4}), usual_mesh(world), {Replicate()});
    set_gradient_policy(x, kHold);
    const at::Tensor view = x.t();
    ASSERT_TRUE(payload_in(view)->policies());
    EXPECT_EQ(to_string(payload_in(view)->policies()->policies), "leaf: hold; module: none");
  });
}

TEST(GradientPolicy, AnUnknownAxisOrAPlainTensorIsRefused) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({4}), usual_mesh(world), {Replicate()});
    const std::string error =
        error_of([&] { set_gradient_policy(x, GradientPolicy({{"dp", kHold}})); });
    EXPECT_TRUE(contains(error, "names an axis that the tensor's mesh does not have")) << error;
    EXPECT_TRUE(contains(error_of([&] { set_gradient_policy(numbers({4}), kHold); }),
                         "a plain tensor has no gradient policy"));
  });
}

}  // namespace gradient_policy_test
}  // namespace tegula::inner
