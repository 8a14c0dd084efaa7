// Strict mode: what moves data unasked is an error, what is asked for is not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "tests/placement/usage_error.h"
#include "tests/tensor/environment_variable.h"
#include "tests/tensor/pinned_text.h"
#include "tests/tensor/rank_processes.h"
#include "tests/tensor/small_transformer.h"

namespace tegula {
namespace strict_test {

using small::waves;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

at::Tensor placed(at::IntArrayRef shape, const DeviceMesh& mesh, const Placement& placement) {
  return distribute_tensor(waves(shape), mesh, {placement});
}

void on_two_ranks(const std::function<void(const World&, const DeviceMesh&)>& body) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  const auto on_rank = [&](World& world) { body(world, world.mesh({{"tp", 2}})); };
  EXPECT_NO_THROW(run_ranks(2, on_rank, patient_world()));
}

TEST(Strict, AnOpThatWouldMoveAnOperandNamesItselfAndThePlan) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor x = placed({4, 6}, mesh, Shard(0));
    const at::Tensor y = placed({4, 6}, mesh, Shard(1));
    const CommLog log(world);
    const StrictMode strict;
    const std::string error = usage_error_of([&] { x + y; });
    EXPECT_TRUE(has(error, "an op would redistribute an operand unasked")) << error;
    EXPECT_TRUE(has(error, "aten::add.Tensor(self: f32[4, 6] on (tp=2) as [S(0)]")) << error;
    EXPECT_TRUE(has(error, "all-to-all over tp: [S(1)] -> [S(0)]")) << error;
    EXPECT_TRUE(has(error, "redistribute it before the call")) << error;
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(Strict, AnOwedSumIsNotPaidUnasked) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor owed =
        at::matmul(placed({4, 6}, mesh, Shard(1)), placed({6, 4}, mesh, Shard(0)));
    const CommLog log(world);
    const StrictMode strict;
    const std::string error = usage_error_of([&] { at::gelu(owed); });
    EXPECT_TRUE(has(error, "aten::gelu(self: f32[4, 4] on (tp=2) as [P(sum)]")) << error;
    EXPECT_TRUE(has(error, "all-reduce over tp: [P(sum)] -> [R]")) << error;
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(Strict, AnOpWithoutARuleDoesNotGather) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor x = placed({4, 4}, mesh, Shard(0));
    const CommLog log(world);
    const StrictMode strict;
    const std::string error = usage_error_of([&] { at::pdist(x); });
    EXPECT_TRUE(has(error, "an op would gather its operands: no rule covers it")) << error;
    EXPECT_TRUE(has(error, "aten::_pdist_forward")) << error;
    EXPECT_TRUE(has(error, "gather f32[4, 4] on (tp=2) as [S(0)]")) << error;
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_NO_THROW(at::pdist(redistribute(x, {Replicate()})));
  });
}

TEST(Strict, WhatAViewOfACutTensorLooksAtIsNotGathered) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor x = placed({4, 6}, mesh, Shard(0));
    const CommLog log(world);
    const StrictMode strict;
    const at::Tensor row = x.select(0, 1);
    for (const std::string& error :
         {usage_error_of([&] { row + 1; }), usage_error_of([&] { row.clone(); }),
          usage_error_of([&] { row.softmax(0); }), usage_error_of([&] { row.fill_(1); })}) {
      EXPECT_TRUE(has(error, "an op would gather")) << error;
      EXPECT_TRUE(has(error, "gather f32[4, 6] on (tp=2) as [S(0)]")) << error;
    }
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_EQ(row[2].item<float>(), waves({4, 6})[1][2].item<float>());
  });
}

TEST(Strict, ACopyToAnotherCutIsNotMadeUnasked) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor to = placed({4, 6}, mesh, Shard(0));
    const at::Tensor owing = at::sum(placed({2, 4, 6}, mesh, Shard(0)), 0);
    const CommLog log(world);
    const StrictMode strict;
    EXPECT_NE(usage_error_of([&] { to.copy_(owing); }), "nothing was thrown");
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_NE(usage_error_of([&] { owing.copy_(to); }), "nothing was thrown");
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(Strict, WhatStaysOnItsRankIsAllowed) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor x = placed({4, 6}, mesh, Shard(0));
    const at::Tensor everywhere = placed({4, 6}, mesh, Replicate());
    const CommLog log(world);
    const StrictMode strict;
    const at::Tensor sums = at::gelu(x * everywhere).slice(1, 1, 3).t().contiguous() + 1;
    const at::Tensor owed = at::sum(x, 0) * 2;
    EXPECT_EQ(placements_of(sums), Placements{Shard(1)});
    EXPECT_EQ(placements_of(owed), Placements{Partial()});
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(Strict, WhatIsAskedForIsAllowed) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor x = placed({4, 6}, mesh, Shard(0));
    const CommLog log(world);
    const StrictMode strict;
    EXPECT_EQ(placements_of(redistribute(x, {Shard(1)})), Placements{Shard(1)});
    EXPECT_TRUE(at::equal(full_tensor(x), waves({4, 6})));
    EXPECT_NEAR(at::sum(x).item<float>(), waves({4, 6}).sum().item<float>(), 1e-5);
    EXPECT_EQ(log.size(), 3U) << log.to_string();
  });
}

TEST(Strict, GradientsMayGoToWhereTheirLeafIs) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor weight = placed({6, 6}, mesh, Replicate()).set_requires_grad(true);
    const at::Tensor x = placed({4, 6}, mesh, Shard(0));
    const CommLog log(world);
    const StrictMode strict;
    const at::Tensor y = at::matmul(x, weight);
    y.backward(at::ones_like(y));
    EXPECT_EQ(placements_of(weight.grad()), Placements{Replicate()});
    EXPECT_EQ(log.to_string(),
              "all-reduce sum over tp (2 ranks): 144 bytes, for gradient of a leaf");
  });
}

TEST(Strict, TotalsThatAnOpNeedsForItsResultAreAllowed) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor logits = placed({4, 6}, mesh, Shard(1)).set_requires_grad(true);
    const at::Tensor targets = distribute_tensor(at::arange(4), mesh, {Replicate()});
    const CommLog log(world);
    const StrictMode strict;
    EXPECT_EQ(placements_of(at::softmax(logits, 1)), Placements{Shard(1)});
    at::cross_entropy_loss(logits, targets).backward();
    EXPECT_EQ(placements_of(logits.grad()), Placements{Shard(1)});
    for (const CommEntry& entry : log.entries()) EXPECT_EQ(entry.bytes, 16) << to_string(entry);
  });
}

TEST(Strict, GuardsNestAndEnd) {
  on_two_ranks([](const World&, const DeviceMesh& mesh) {
    const at::Tensor x = placed({4, 6}, mesh, Shard(0));
    const at::Tensor y = placed({4, 6}, mesh, Shard(1));
    EXPECT_NO_THROW(x + y);
    {
      const StrictMode outer;
      {
        const StrictMode inner;
        EXPECT_THROW(x + y, UsageError);
        {
          const inner::OnPurpose purpose;
          EXPECT_FALSE(StrictMode::is_on());
          EXPECT_NO_THROW(x + y);
        }
      }
      EXPECT_TRUE(StrictMode::is_on());
      EXPECT_THROW(x + y, UsageError);
    }
    EXPECT_FALSE(StrictMode::is_on());
    EXPECT_NO_THROW(x + y);
  });
}

void add_differently_cut(World& world, const std::string& expected) {
  const DeviceMesh mesh = world.mesh({{"tp", 2}});
  const at::Tensor x = placed({4, 6}, mesh, Shard(0));
  const at::Tensor y = placed({4, 6}, mesh, Shard(1));
  const std::string error = usage_error_of([&] { x + y; });
  if (has(error, expected)) return;
  throw std::runtime_error("expected \"" + expected + "\" but got: " + error);
}

const RankProgram kAddDifferentlyCut("add differently cut", add_differently_cut);

TEST(Strict, TheEnvironmentSwitchesItOnEverywhere) {
  for (const char* value : {"1", "yes"}) {
    const EnvironmentVariable strict("TEGULA_STRICT", value);
    EXPECT_NO_THROW(kAddDifferentlyCut.run(2, "an op would redistribute an operand unasked", 240));
  }
  for (const char* value : {"0", ""}) {
    const EnvironmentVariable strict("TEGULA_STRICT", value);
    EXPECT_NO_THROW(kAddDifferentlyCut.run(2, "nothing was thrown", 240));
  }
}

struct MeshCase {
  std::string name;
  std::vector<MeshAxis> axes;
};

void PrintTo(const MeshCase& mesh, std::ostream* out) { *out << mesh.name; }

class StrictTraining : public testing::TestWithParam<MeshCase> {};

// With explicit redistributes at two places per block, nothing else moves.
TEST_P(StrictTraining, CommunicatesAsPinnedAndLearnsAsOnPlainTensors) {
  int ranks = 1;
  for (const MeshAxis& axis : GetParam().axes) ranks *= static_cast<int>(axis.size);
  expect_pinned("strict_" + GetParam().name, ranks, [&](World& world, CommReport& report) {
    const DeviceMesh mesh = world.mesh(GetParam().axes);
    small::Model plain;
    small::Model model(small::tensor_parallel_moves(mesh));
    model.distribute(mesh);
    const auto options = torch::optim::AdamWOptions(0.01);
    torch::optim::AdamW plain_optimizer(plain.module().parameters(), options);
    torch::optim::AdamW optimizer(model.module().parameters(), options);
    const small::Batch batch = small::distributed_batch(mesh);
    const auto train = [&](CommReport& into) {
      const at::Tensor plain_loss = plain.loss(small::plain_batch());
      plain_optimizer.zero_grad();
      plain_loss.backward();
      plain_optimizer.step();
      const StrictMode strict;
      at::Tensor loss;
      into.under("forward", [&] { loss = model.loss(batch); });
      EXPECT_NEAR(full_tensor(loss).item<float>(), plain_loss.item<float>(), 1e-4);
      optimizer.zero_grad();
      into.under("backward", [&] { loss.backward(); });
      into.under("step", [&] { optimizer.step(); });
    };
    train(report);
    CommReport again(world);
    train(again);
    EXPECT_EQ(again.text(), report.text());
  });
}

INSTANTIATE_TEST_SUITE_P(On, StrictTraining,
                         testing::Values(MeshCase{"tp", {{"tp", 2}}}, MeshCase{"dp", {{"dp", 2}}},
                                         MeshCase{"dp_tp", {{"dp", 2}, {"tp", 2}}}),
                         [](const auto& mesh) { return mesh.param.name; });

}  // namespace strict_test
}  // namespace tegula
