// A transformer of libtorch's own modules, distributed over meshes that fit none of its sizes, and
// the same one on plain tensors: logits, loss, gradients and three steps of AdamW are the same.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <stdexcept>

#include "tegula/tensor/module.h"
#include "tests/tensor/mesh_forms.h"
#include "tests/tensor/rank_processes.h"

namespace tegula {
namespace transformer_test {

constexpr std::int64_t kVocabulary = 13, kWidth = 12, kHeads = 3, kFeedForward = 17;
constexpr std::int64_t kBatch = 3, kSequence = 5;
constexpr double kTolerance = 1e-10;

// Attention by libtorch's module; it takes [sequence, batch, width].
struct ModuleAttention : torch::nn::Module {
  torch::nn::MultiheadAttention attention{
      register_module("attention", torch::nn::MultiheadAttention(kWidth, kHeads))};

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const at::Tensor rows = x.transpose(0, 1);
    const auto [result, weights] = attention->forward(rows, rows, rows, {}, false, mask);
    return result.transpose(0, 1);
  }
};

// Attention as it is written by hand.
struct WrittenAttention : torch::nn::Module {
  torch::nn::Linear query{register_module("query", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Linear key{register_module("key", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Linear value{register_module("value", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Linear out_proj{register_module("out_proj", torch::nn::Linear(kWidth, kWidth))};

  at::Tensor forward(const at::Tensor& x) {
    const auto heads = [&](torch::nn::Linear& part) {
      return part(x).view({x.size(0), x.size(1), kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads(query), heads(key), heads(value), {}, 0.0, /*is_causal=*/true);
    return out_proj(mixed.transpose(1, 2).reshape(x.sizes()));
  }
};

struct FeedForward : torch::nn::Module {
  torch::nn::Linear up{register_module("up", torch::nn::Linear(kWidth, kFeedForward))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(kFeedForward, kWidth))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.0))};

  at::Tensor forward(const at::Tensor& x) { return dropout(down(at::gelu(up(x)))); }
};

torch::nn::LayerNorm layer_norm() {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth}));
}

struct Transformer : torch::nn::Module {
  torch::nn::Embedding tokens{register_module("tokens", torch::nn::Embedding(kVocabulary, kWidth))};
  torch::nn::Embedding places{register_module("places", torch::nn::Embedding(kSequence, kWidth))};
  std::shared_ptr<ModuleAttention> first{
      register_module("first", std::make_shared<ModuleAttention>())};
  std::shared_ptr<WrittenAttention> second{
      register_module("second", std::make_shared<WrittenAttention>())};
  torch::nn::LayerNorm norm1{register_module("norm1", layer_norm())};
  torch::nn::LayerNorm norm2{register_module("norm2", layer_norm())};
  torch::nn::LayerNorm norm3{register_module("norm3", layer_norm())};
  torch::nn::LayerNorm norm4{register_module("norm4", layer_norm())};
  torch::nn::LayerNorm norm5{register_module("norm5", layer_norm())};
  std::shared_ptr<FeedForward> feed1{register_module("feed1", std::make_shared<FeedForward>())};
  std::shared_ptr<FeedForward> feed2{register_module("feed2", std::make_shared<FeedForward>())};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(kWidth, kVocabulary))};

  at::Tensor forward(const at::Tensor& words, const at::Tensor& numbers, const at::Tensor& mask) {
    at::Tensor x = tokens(words) + places(numbers);
    x = x + first->forward(norm1(x), mask);
    x = x + feed1->forward(norm2(x));
    x = x + second->forward(norm3(x));
    x = x + feed2->forward(norm4(x));
    return head(norm5(x));
  }
};

// The same numbers in every process and thread: libtorch's own generator is shared by threads.
at::Tensor waves(at::IntArrayRef shape, double phase) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kDouble) * 1.7 + phase).sin().reshape(shape) * 0.4;
}

std::shared_ptr<Transformer> transformer() {
  auto model = std::make_shared<Transformer>();
  model->to(at::kDouble);
  const at::NoGradGuard guard;
  double phase = 0;
  for (at::Tensor& parameter : model->parameters()) {
    parameter.copy_(waves(parameter.sizes(), phase += 0.9));
  }
  return model;
}

struct Batch {
  at::Tensor words, numbers, mask, targets;
};

Batch plain_batch() {
  const at::Tensor all = at::arange(kBatch * kSequence, at::kLong).reshape({kBatch, kSequence});
  return {(all * 5 + 2).remainder(kVocabulary), at::arange(kSequence, at::kLong),
          at::full({kSequence, kSequence}, -std::numeric_limits<double>::infinity(), at::kDouble)
              .triu(1),
          (all * 7 + 1).remainder(kVocabulary)};
}

// The first of several axes cuts the batch.
Batch distributed_batch(const DeviceMesh& mesh) {
  const Placements everywhere(mesh.ndim(), Replicate());
  Placements by_batch = everywhere;
  if (mesh.ndim() > 1) by_batch[0] = Shard(0);
  const Batch plain = plain_batch();
  const auto placed = [&](const at::Tensor& tensor, const Placements& placements) {
    return distribute_tensor(tensor, mesh, placements);
  };
  return {placed(plain.words, by_batch), placed(plain.numbers, everywhere),
          placed(plain.mask, everywhere), placed(plain.targets, by_batch)};
}

bool has(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

// The last axis cuts what goes into the layers by columns and what comes out by rows; one between
// the first and the last cuts every parameter along its first dim.
Placements placements_for(const std::string& name, const DeviceMesh& mesh) {
  Placements placements(mesh.ndim(), Replicate());
  for (std::size_t axis = 1; axis + 1 < mesh.ndim(); ++axis) placements[axis] = Shard(0);
  Placement& last = placements.back();
  if (has(name, "norm") || has(name, "places")) return placements;
  const bool by_rows = has(name, "out_proj") || has(name, "down");
  if (!by_rows) last = Shard(0);
  if (by_rows && has(name, "weight")) last = Shard(1);
  return placements;
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.reshape({-1, kVocabulary}), targets.reshape({-1}));
}

void check_same(const at::Tensor& distributed, const at::Tensor& plain, const std::string& what) {
  const at::NoGradGuard guard;
  if (!is_dtensor(distributed)) throw std::runtime_error(what + " is no DTensor");
  const at::Tensor got = full_tensor(distributed);
  const double error = (got - plain).abs().max().item<double>();
  if (got.sizes() == plain.sizes() && error <= kTolerance) return;
  throw std::runtime_error(what + " is off by " + std::to_string(error) + ": " +
                           to_string(spec_of(distributed)));
}

using Named = std::map<std::string, at::Tensor>;

Named parameters_of(const torch::nn::Module& module) {
  Named result;
  for (const auto& item : module.named_parameters()) result[item.key()] = item.value();
  return result;
}

void check_parameters(const Named& distributed, const Named& plain, const DeviceMesh& mesh,
                      const std::string& when) {
  for (const auto& [name, parameter] : plain) {
    const at::Tensor& got = distributed.at(name);
    check_same(got.grad(), parameter.grad(), "the gradient of " + name + when);
    check_same(got, parameter, name + when);
    const Placements wanted = placements_for(name, mesh);
    if (placements_of(got) != wanted || placements_of(got.grad()) != wanted)
      throw std::runtime_error(name + " or its gradient has moved" + when + ": " +
                               to_string(spec_of(got)) + ", " + to_string(spec_of(got.grad())));
  }
}

void compare_with_plain(const DeviceMesh& mesh) {
  const auto plain = transformer();
  const auto model = transformer();
  distribute_module(*model, mesh, [&](const std::string& name, const at::Tensor&) {
    return placements_for(name, mesh);
  });
  const Batch plain_data = plain_batch();
  const Batch data = distributed_batch(mesh);
  const auto options = torch::optim::AdamWOptions(0.01).weight_decay(0.1);
  torch::optim::AdamW plain_optimizer(plain->parameters(), options);
  torch::optim::AdamW optimizer(model->parameters(), options);
  for (int step = 1; step <= 3; ++step) {
    const std::string when = " in step " + std::to_string(step);
    const at::Tensor want = plain->forward(plain_data.words, plain_data.numbers, plain_data.mask);
    const at::Tensor got = model->forward(data.words, data.numbers, data.mask);
    check_same(got, want, "the output" + when);
    const at::Tensor plain_loss = loss_of(want, plain_data.targets);
    const at::Tensor loss = loss_of(got, data.targets);
    check_same(loss, plain_loss, "the loss" + when);
    plain_optimizer.zero_grad();
    optimizer.zero_grad();
    plain_loss.backward();
    loss.backward();
    plain_optimizer.step();
    optimizer.step();
    check_parameters(parameters_of(*model), parameters_of(*plain), mesh, when);
  }
}

void compare_on(World& world, const std::string& form) {
  compare_with_plain(world.mesh(axes_of(form)));
}

const RankProgram kTransformer("transformer", compare_on);

class Transformers : public testing::TestWithParam<std::string> {};

TEST_P(Transformers, LearnAsOnPlainTensorsOnThreads) {
  const auto body = [](World& world) { compare_on(world, GetParam()); };
  EXPECT_NO_THROW(run_ranks(ranks_of(GetParam()), body, patient_world()));
}

TEST_P(Transformers, LearnAsOnPlainTensorsInProcesses) {
  EXPECT_NO_THROW(kTransformer.run(ranks_of(GetParam()), GetParam(), 240));
}

INSTANTIATE_TEST_SUITE_P(OnMesh, Transformers,
                         testing::Values("1", "2", "4", "2x2", "2x2x2", "3", "1x5"),
                         [](const auto& mesh) { return "Of" + mesh.param; });

}  // namespace transformer_test
}  // namespace tegula
