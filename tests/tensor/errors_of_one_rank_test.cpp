// An error that one rank alone meets in an op ends on all ranks, with the rank, the op and the
// specs; then all recover, and go on.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/tegula.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace errors_of_one_rank_test {

// The body throws on some ranks; then all communicate. Gives what each rank met, after a recovery
// that leaves the world usable.
std::vector<std::string> errors_of(int ranks, const std::function<void(World&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({8}, mesh, {Shard(0)});
    texts[static_cast<std::size_t>(world.rank())] = error_of([&] {
      body(world);
      full_tensor(x);
    });
    world.recover();
    EXPECT_TRUE(at::equal(full_tensor(x), at::ones({8})));
    const at::Tensor noise = randn({6, 6}, mesh, {Shard(0)}, at::kDouble);
    EXPECT_TRUE(at::allclose(full_tensor(noise.sum()), full_tensor(noise).sum()));
    full_tensor(noise + full_tensor(noise));  // a plain operand, which ranks have to agree on
  });
  return texts;
}

void expect_told(const std::vector<std::string>& texts, const std::vector<std::string>& words) {
  for (const std::string& text : texts) {
    for (const std::string& word : words) EXPECT_TRUE(contains(text, word)) << text;
    EXPECT_FALSE(contains(text, "did not come within")) << text;
  }
}

at::Tensor cut(World& world, const at::Tensor& whole) {
  return distribute_tensor(whole, usual_mesh(world), {Shard(0)});
}

TEST(ErrorOfOneRank, WhatAFunctionOnTilesThrowsReachesAll) {
  std::vector<std::string> texts = errors_of(3, [](World& world) {
    const auto fails_on_one = [&](const std::vector<at::Tensor>& tiles) {
      if (world.rank() == 1) throw std::runtime_error("a mistake of the user's");
      return tiles;
    };
    local_map(fails_on_one, {cut(world, at::ones({6}))}, {{Shard(0)}});
  });
  EXPECT_EQ(texts[1], "a mistake of the user's");
  texts.erase(texts.begin() + 1);
  expect_told(texts, {"rank 1 failed: the function of local_map: a mistake of the user's"});
}

TEST(ErrorOfOneRank, ADivisionByZeroInOneTileReachesAll) {
  using Divide = std::function<void(const at::Tensor&, const at::Tensor&)>;
  for (const auto& [op, divide] : std::vector<std::pair<std::string, Divide>>{
           {"div", [](const at::Tensor& x, const at::Tensor& y) { x.div(y, "floor"); }},
           {"div", [](const at::Tensor& x, const at::Tensor& y) { x.div_(y, "trunc"); }},
           {"floor_divide", [](const at::Tensor& x, const at::Tensor& y) { x.floor_divide(y); }},
           {"fmod", [](const at::Tensor& x, const at::Tensor& y) { x.fmod(y); }},
           {"remainder_", [](const at::Tensor& x, const at::Tensor& y) { x.remainder_(y); }}}) {
    expect_told(errors_of(3,
                          [&divide](World& world) {
                            at::Tensor divisor = at::ones({6}, at::kInt);
                            divisor[5] = 0;
                            divide(cut(world, at::ones({6}, at::kInt)), cut(world, divisor));
                          }),
                {"aten::" + op, "ZeroDivisionError", "i32[6] on (a=3) as [S(0)]"});
  }
}

TEST(ErrorOfOneRank, AnIndexOutOfRangeInOneTileReachesAll) {
  expect_told(errors_of(3,
                        [](World& world) {
                          at::Tensor indices = at::zeros({6}, at::kLong);
                          indices[2] = 99;
                          const at::Tensor table =
                              distribute_tensor(at::ones({4, 2}), usual_mesh(world), {Replicate()});
                          at::embedding(table, cut(world, indices));
                        }),
              {"aten::embedding", "out of range", "on (a=3)"});
}

TEST(ErrorOfOneRank, AProbabilityAboveOneInOneTileReachesAll) {
  expect_told(errors_of(2,
                        [](World& world) {
                          at::Tensor p = at::full({4}, 0.5);
                          p[3] = 2;
                          at::bernoulli(cut(world, p));
                        }),
              {"aten::bernoulli"});
}

TEST(ErrorOfOneRank, ATargetOutOfRangeInOneTileReachesAll) {
  expect_told(errors_of(3,
                        [](World& world) {
                          at::Tensor target = at::zeros({6}, at::kLong);
                          target[4] = 77;
                          at::cross_entropy_loss(cut(world, at::rand({6, 5})), cut(world, target));
                        }),
              {"nll_loss", "out of bounds"});
}

TEST(ErrorOfOneRank, ReachesRanksOfA2x2MeshThatDoNotTalkToItDirectly) {
  std::vector<std::string> texts(4);
  run_ranks(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const at::Tensor x = distribute_tensor(at::ones({4, 4}), mesh, {Shard(0), Shard(1)});
    at::Tensor divisor = at::ones({4, 4}, at::kInt);
    divisor[3][3] = 0;
    const at::Tensor d = distribute_tensor(divisor, mesh, {Shard(0), Shard(1)});
    texts[static_cast<std::size_t>(world.rank())] = error_of([&] {
      d.remainder(d);
      full_tensor(x);
    });
    world.recover();
    EXPECT_TRUE(at::equal(full_tensor(x), at::ones({4, 4})));
  });
  expect_told(texts, {"aten::remainder", "ZeroDivisionError"});
}

TEST(ErrorOfOneRank, IsKnownOnItsSecondCallToo) {  // when the decision is remembered
  expect_told(errors_of(2,
                        [](World& world) {
                          const at::Tensor x = cut(world, at::ones({4}, at::kInt));
                          at::Tensor divisor = at::ones({4}, at::kInt);
                          x.remainder(cut(world, divisor));
                          divisor[0] = 0;
                          x.remainder(cut(world, divisor));
                        }),
              {"aten::remainder", "ZeroDivisionError", "i32[4] on (a=2) as [S(0)]"});
}

// A program that leaves a batch out where it meets an error, without a word to the others, would
// add the gradients of one batch to those of another.
TEST(ErrorOfOneRank, IsOneOfAllThoughItsRankTakesTheNextBatchAtOnce) {
  std::vector<std::string> texts(3);
  run_ranks(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor table = zeros({4, 2}, mesh, {Replicate()}).requires_grad_();
    texts[static_cast<std::size_t>(world.rank())] = error_of([&] {
      for (std::int64_t batch = 0; batch < 6; ++batch) {
        at::Tensor words = at::zeros({6}, at::kLong);
        if (batch == 3) words[2] = 99;  // in the tile of rank 1
        at::Tensor loss;
        try {
          loss = at::embedding(table, cut(world, words)).sum();
        } catch (const c10::Error&) {
          continue;
        }
        loss.backward();
      }
    });
    world.recover();
  });
  expect_told(texts, {"rank 1 failed: aten::embedding", "out of range"});
}

TEST(ErrorOfAllRanks, IsHarmlessHoweverOften) {
  run_ranks(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({6, 4}, mesh, {Shard(0)});
    for (int i = 0; i < 60; ++i) {
      EXPECT_FALSE(error_of([&] { at::mm(x, x); }).empty());
      if (i % 20 == 0) full_tensor(x);
    }
    EXPECT_TRUE(at::equal(full_tensor(x), at::ones({6, 4})));
  });
}

// A step of training in which one rank throws at its n-th op, for every n.
TEST(ErrorOfOneRank, AtAnyOpOfAStepIsRecoveredFrom) {
  const auto step = [](const DeviceMesh& mesh, const std::function<void()>& between) {
    const at::Tensor x = distribute_tensor(at::arange(32, at::kDouble).reshape({4, 8}) / 10, mesh,
                                           {Shard(0), Replicate()});
    at::Tensor up = distribute_tensor(at::linspace(-1, 1, 48, at::kDouble).reshape({8, 6}), mesh,
                                      {Replicate(), Shard(1)});
    at::Tensor down = distribute_tensor(at::linspace(1, -1, 12, at::kDouble).reshape({6, 2}), mesh,
                                        {Replicate(), Shard(0)});
    up.requires_grad_();
    down.requires_grad_();
    between();
    const at::Tensor hidden = at::mm(x, up);
    between();
    const at::Tensor active = at::dropout(hidden.relu(), 0.5, true);
    between();
    const at::Tensor out = at::mm(active, down);
    between();
    const at::Tensor loss = out.pow(2).mean();
    between();
    loss.backward();
    between();
    return at::cat({full_tensor(up.grad()).flatten(), full_tensor(down.grad()).flatten(),
                    full_tensor(loss).reshape({1})});
  };
  run_ranks(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    manual_seed(world, 5);
    const at::Tensor want = step(mesh, [] {});
    for (int stop = 0; stop < 6; ++stop) {
      int count = 0;
      const std::string error = error_of([&] {
        step(mesh, [&] {
          if (count++ == stop && world.rank() == stop % 4) {
            try {
              throw std::runtime_error("a hook of the user's");
            } catch (...) {
              world.recover();
              throw;
            }
          }
        });
      });
      if (world.rank() != stop % 4) {
        EXPECT_TRUE(contains(error, "a hook of the user's")) << error;
        world.recover();
      }
      manual_seed(world, 5);
      EXPECT_TRUE(at::equal(step(mesh, [] {}), want));
    }
  });
}

}  // namespace errors_of_one_rank_test
}  // namespace tegula
