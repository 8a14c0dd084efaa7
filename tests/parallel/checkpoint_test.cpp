// A checkpointed function gives the results and gradients that it gives without.
#include "tegula/parallel/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tegula/random/random.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace checkpoint_test {

// Two layers with dropout in between: weights that the function uses without being given them.
struct Layers {
  explicit Layers(const std::function<at::Tensor(const at::Tensor&)>& place)
      : up(place(numbers({6, 4}, 1)).requires_grad_()),
        down(place(numbers({4, 6}, 2)).requires_grad_()) {}
  at::Tensor operator()(const at::Tensor& x) const {
    ++calls;
    return at::linear(at::dropout(at::gelu(at::linear(x, up)), 0.5, /*train=*/true), down);
  }
  at::Tensor up, down;
  mutable int calls = 0;
};

struct Outcome {
  at::Tensor result, x, up, down;
};

std::string difference(const Outcome& a, const Outcome& b) {
  return tegula::difference(a.result, b.result, 0) + tegula::difference(a.x, b.x) +
         tegula::difference(a.up, b.up) + tegula::difference(a.down, b.down);
}

using Wrap = std::function<at::Tensor(const Layers&, const at::Tensor&)>;

at::Tensor as_it_is(const Layers& layers, const at::Tensor& x) { return layers(x); }
at::Tensor checkpointed(const Layers& layers, const at::Tensor& x) {
  return checkpoint([&](const at::Tensor& input) { return layers(input); }, x);
}
at::Tensor nested(const Layers& layers, const at::Tensor& x) {
  return checkpoint([&](const at::Tensor& input) { return checkpointed(layers, input); }, x);
}

Outcome outcome_on(World& world, const Wrap& wrap) {
  const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
  manual_seed(world, 7);
  const Layers layers([&](const at::Tensor& weight) {
    return distribute_tensor(weight, mesh, {Replicate(), Shard(0)}, kSameOnAllRanks);
  });
  at::Tensor x = shard_batch(numbers({5, 4}, 3), mesh).requires_grad_();
  const at::Tensor y = wrap(layers, wrap(layers, x));
  const at::Tensor between = at::rand_like(y);  // random numbers go on behind it
  (y * between).sum().backward();
  const at::Tensor after = at::rand_like(y);
  return {full_tensor(y) + full_tensor(after), full_tensor(x.grad()), full_tensor(layers.up.grad()),
          full_tensor(layers.down.grad())};
}

TEST(Checkpoint, OfDTensorsChangesNothing) {
  run_impatient(4, [](World& world) {
    const Outcome plain = outcome_on(world, as_it_is);
    EXPECT_EQ(difference(outcome_on(world, checkpointed), plain), "");
    EXPECT_EQ(difference(outcome_on(world, nested), plain), "");
  });
}

Outcome plain_outcome(const Wrap& wrap) {
  at::manual_seed(7);
  const Layers layers([](const at::Tensor& weight) { return weight.clone(); });
  at::Tensor x = numbers({5, 4}, 3).requires_grad_();
  const at::Tensor y = wrap(layers, wrap(layers, x));
  (y * at::rand_like(y)).sum().backward();
  return {y + at::rand_like(y), x.grad(), layers.up.grad(), layers.down.grad()};
}

TEST(Checkpoint, OfPlainTensorsChangesNothing) {
  const Outcome plain = plain_outcome(as_it_is);
  EXPECT_EQ(difference(plain_outcome(checkpointed), plain), "");
  EXPECT_EQ(difference(plain_outcome(nested), plain), "");
}

TEST(Checkpoint, ComputesAgainInBackwardAndKeepsNothing) {
  const Layers layers([](const at::Tensor& weight) { return weight.clone(); });
  std::weak_ptr<int> held;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& x) {
        const auto alive = std::make_shared<int>(0);
        held = alive;
        return layers(x);
      },
      numbers({5, 4}, 3));
  EXPECT_EQ(layers.calls, 1);
  EXPECT_TRUE(held.expired());
  y.sum().backward();
  EXPECT_EQ(layers.calls, 2);
  EXPECT_TRUE(layers.up.grad().defined());  // although the input wants none
}

TEST(Checkpoint, OfSeveralInputsAndResults) {
  const auto function = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0] * in[1], in[1].exp(), in[2] + 1};
  };
  const auto gradients = [&](bool with_checkpoint) {
    const at::Tensor a = leaf({3}, 1), b = leaf({3}, 2), number = numbers({3}, 3);
    const auto results =
        with_checkpoint ? checkpoint(function, {a, b, number}) : function({a, b, number});
    (results[0].sum() + results[2].sum()).backward();  // the second is not used
    return std::pair(a.grad(), b.grad());
  };
  const auto [a, b] = gradients(false);
  const auto [again_a, again_b] = gradients(true);
  EXPECT_EQ(tegula::difference(again_a, a), "");
  EXPECT_EQ(tegula::difference(again_b, b), "");
}

TEST(Checkpoint, WithoutGradIsAPlainCall) {
  const at::NoGradGuard no_grad;
  const Layers layers([](const at::Tensor& weight) { return weight.clone(); });
  EXPECT_FALSE(checkpointed(layers, numbers({5, 4}, 3)).requires_grad());
}

TEST(Checkpoint, SeesThatAnInputChanged) {
  at::Tensor x = numbers({3});
  const at::Tensor y = checkpoint([](const at::Tensor& in) { return in * in; }, x);
  x.add_(1);
  EXPECT_TRUE(contains(error_of([&] { y.sum().backward(); }), "modified by an inplace operation"));
}

TEST(Checkpoint, RefusesWhatItCannotDo) {
  const auto square = [](const at::Tensor& in) { return in * in; };
  const at::Tensor x = leaf({3});
  EXPECT_TRUE(contains(
      error_of([&] { checkpoint(square, x).sum().backward({}, true, /*create_graph=*/true); }),
      "a checkpoint cannot be differentiated twice"));
  EXPECT_TRUE(contains(error_of([&] { torch::autograd::grad({checkpoint(square, x).sum()}, {x}); }),
                       "gradients of chosen inputs cannot pass a checkpoint"));
  int calls = 0;
  const auto moody = [&](const std::vector<at::Tensor>& in) {
    return ++calls == 1 ? std::vector<at::Tensor>{in[0] * 2, in[0]} : std::vector{in[0] * 2};
  };
  EXPECT_TRUE(contains(error_of([&] { checkpoint(moody, {x})[0].sum().backward(); }),
                       "another number of results in backward"));
}

}  // namespace checkpoint_test
}  // namespace tegula
