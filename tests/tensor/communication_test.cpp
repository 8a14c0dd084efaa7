// What models communicate, pinned line by line: a collective that appears, grows or is asked for by
// another op fails here.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/tensor/environment_variable.h"
#include "tests/tensor/pinned_text.h"
#include "tests/tensor/small_transformer.h"

namespace tegula {
namespace communication_test {

using small::waves;

at::Tensor placed(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  return distribute_tensor(tensor, mesh, placements);
}

at::Tensor parameter(at::IntArrayRef shape, const DeviceMesh& mesh, const Placement& placement) {
  return placed(waves(shape), mesh, {placement}).set_requires_grad(true);
}

TEST(Communication, OfAColumnAndRowParallelFeedForward) {
  expect_pinned("feed_forward_tp", 2, [](World& world, CommReport& report) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor before = parameter({16}, mesh, Replicate());
    const at::Tensor up = parameter({32, 16}, mesh, Shard(0));
    const at::Tensor up_bias = parameter({32}, mesh, Shard(0));
    const at::Tensor down = parameter({16, 32}, mesh, Shard(1));
    const at::Tensor down_bias = parameter({16}, mesh, Replicate());
    const at::Tensor x = placed(waves({4, 8, 16}), mesh, {Replicate()});
    at::Tensor y;
    report.under("forward", [&] {
      const at::Tensor h = at::gelu(at::linear(x * before, up, up_bias));
      y = at::relu(at::linear(h, down, down_bias));
    });
    report.under("backward", [&] { y.backward(at::ones_like(y)); });
  });
}

struct TrainingCase {
  std::string name;
  std::vector<MeshAxis> axes;
  Placement vocabulary = Replicate();
};

void PrintTo(const TrainingCase& training, std::ostream* out) { *out << training.name; }

class Training : public testing::TestWithParam<TrainingCase> {};

TEST_P(Training, CommunicatesAsPinned) {
  const TrainingCase& training = GetParam();
  int ranks = 1;
  for (const MeshAxis& axis : training.axes) ranks *= static_cast<int>(axis.size);
  expect_pinned(training.name, ranks, [&](World& world, CommReport& report) {
    const DeviceMesh mesh = world.mesh(training.axes);
    // A tensor that owes a sum is saved so, and the sum is paid again in backward: where the table
    // is cut, its sum is paid at once.
    small::Moves moves;
    moves.begin = small::tensor_parallel_moves(mesh).begin;
    small::Model model(moves);
    model.distribute(mesh, training.vocabulary);
    torch::optim::AdamW optimizer(model.module().parameters(), torch::optim::AdamWOptions(0.01));
    const small::Batch batch = small::distributed_batch(mesh);
    const auto train = [&](CommReport& into) {
      at::Tensor loss;
      optimizer.zero_grad();
      into.under("forward", [&] { loss = model.loss(batch); });
      into.under("backward", [&] { loss.backward(); });
      into.under("step", [&] { optimizer.step(); });
    };
    train(report);
    CommReport again(world);  // by then, all is remembered
    train(again);
    EXPECT_EQ(again.text(), report.text());
  });
}

INSTANTIATE_TEST_SUITE_P(
    Of, Training,
    testing::Values(TrainingCase{"transformer_tp", {{"tp", 2}}},
                    TrainingCase{"transformer_dp", {{"dp", 2}}},
                    TrainingCase{"transformer_dp_tp", {{"dp", 2}, {"tp", 2}}},
                    TrainingCase{"transformer_tp_vocabulary", {{"tp", 2}}, Shard(0)},
                    TrainingCase{"transformer_dp_tp_vocabulary", {{"dp", 2}, {"tp", 2}}, Shard(0)}),
    [](const auto& training) { return training.param.name; });

TEST(Communication, OfSequenceParallelBlocksIsGathersAndReduceScatters) {
  expect_pinned("sequence_parallel", 2, [](World& world, CommReport& report) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor norm = parameter({16}, mesh, Replicate());
    const at::Tensor up = parameter({32, 16}, mesh, Shard(0));
    const at::Tensor down = parameter({16, 32}, mesh, Shard(1));
    const at::Tensor x = placed(waves({4, 8, 16}), mesh, {Shard(1)}).set_requires_grad(true);
    at::Tensor y;
    report.under("forward", [&] {
      const at::Tensor normal = at::layer_norm(x, {16}, norm, norm);
      const at::Tensor whole = redistribute(normal, {Replicate()});
      const at::Tensor sums = at::linear(at::gelu(at::linear(whole, up)), down);
      y = x + redistribute(sums, {Shard(1)});
    });
    report.under("backward", [&] { y.backward(at::ones_like(y)); });
  });
}

TEST(Communication, OfLayersOnACutSequenceIsNone) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor weight = parameter({16, 16}, mesh, Replicate());
    const at::Tensor bias = parameter({16}, mesh, Replicate());
    const at::Tensor x = placed(waves({4, 8, 16}), mesh, {Shard(1)}).set_requires_grad(true);
    CommLog log(world);
    at::Tensor y = at::gelu(at::linear(x, weight, bias));
    y = x + at::dropout(at::layer_norm(y, {16}, bias, bias), 0.5, true);
    const at::Tensor of_x = torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0];
    EXPECT_EQ(log.to_string(), "");
    EXPECT_EQ(placements_of(y), Placements{Shard(1)});
    EXPECT_EQ(placements_of(of_x), Placements{Shard(1)});
  });
}

TEST(Communication, OfABiasAddedToAnOwedSumIsNone) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor x = placed(waves({4, 8, 16}), mesh, {Shard(2)});
    const at::Tensor weight = placed(waves({16, 16}, 1), mesh, {Shard(0)});
    const at::Tensor bias = placed(waves({16}, 2), mesh, {Replicate()});
    CommLog log(world);
    at::Tensor y = at::matmul(x, weight);
    y += bias;
    y.addcmul_(bias, bias, 0.5);
    EXPECT_EQ(log.to_string(), "");
    EXPECT_EQ(placements_of(y), Placements{Partial()});
    const at::Tensor b = waves({16}, 2);
    const at::Tensor want = at::matmul(waves({4, 8, 16}), waves({16, 16}, 1)) + b + b * b * 0.5;
    EXPECT_TRUE(at::allclose(full_tensor(y), want, 1e-4, 1e-5));
  });
}

TEST(Communication, OfAttentionOverCutBatchesAndHeadsIsNone) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_ranks(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const auto heads = [&](double phase) {
      return placed(waves({4, 4, 8, 4}, phase), mesh, {Shard(0), Shard(1)}).set_requires_grad(true);
    };
    const at::Tensor query = heads(0), key = heads(1), value = heads(2);
    CommLog log(world);
    const at::Tensor y = at::scaled_dot_product_attention(query, key, value, {}, 0.0, true);
    y.backward(at::ones_like(y));
    EXPECT_EQ(log.to_string(), "");
    EXPECT_EQ(placements_of(y), (Placements{Shard(0), Shard(1)}));
    EXPECT_EQ(placements_of(key.grad()), (Placements{Shard(0), Shard(1)}));
  });
}

TEST(Communication, OfAVocabularyParallelLossIsTotalsOfRows) {
  expect_pinned("cross_entropy_tp", 2, [](World& world, CommReport& report) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor head = parameter({48, 16}, mesh, Shard(0));
    const at::Tensor x = parameter({32, 16}, mesh, Replicate());
    const at::Tensor targets = placed((at::arange(32) * 7).remainder(48), mesh, {Replicate()});
    at::Tensor loss;
    report.under("forward",
                 [&] { loss = at::cross_entropy_loss(at::linear(x * 1, head), targets); });
    report.under("backward", [&] { loss.backward(); });
  });
}

TEST(Communication, OfAnEmbeddingCutOverTheVocabularyIsOneSum) {
  expect_pinned("embedding_tp", 2, [](World& world, CommReport& report) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor table = parameter({24, 16}, mesh, Shard(0));
    const at::Tensor words =
        placed((at::arange(32) * 5).remainder(24).view({4, 8}), mesh, {Replicate()});
    at::Tensor y;
    report.under("forward", [&] { y = at::gelu(at::embedding(table, words)); });
    report.under("backward", [&] { y.backward(at::ones_like(y)); });
  });
}

}  // namespace communication_test
}  // namespace tegula
