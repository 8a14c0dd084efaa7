#include "tests/tensor/small_transformer.h"

#include <torch/torch.h>

namespace tegula::small {
namespace {

bool has(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

// What goes into the layers is cut by columns, what comes out by rows; norms are everywhere.
Placement along_tp(const std::string& name, const Placement& vocabulary) {
  if (has(name, "norm")) return Replicate();
  if (has(name, "tokens") || has(name, "head")) return vocabulary;
  const bool by_rows = has(name, "out") || has(name, "down");
  if (!by_rows) return Shard(0);
  return has(name, "weight") ? Placement(Shard(1)) : Placement(Replicate());
}

torch::nn::LayerNorm layer_norm() {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth}));
}

}  // namespace

struct Model::Layers : torch::nn::Module {
  explicit Layers(Moves given) : moves(std::move(given)) {}

  at::Tensor attend(const at::Tensor& x) {
    const auto heads = [&](torch::nn::Linear& part) {
      return part(x).view({x.size(0), x.size(1), kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads(query), heads(key), heads(value), {}, 0.0, /*is_causal=*/true);
    return out(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  at::Tensor forward(const at::Tensor& words) {
    at::Tensor x = moves.begin(tokens(words));
    x = x + moves.leave(attend(moves.enter(norm1(x))));
    x = x + moves.leave(down(at::gelu(up(moves.enter(norm2(x))))));
    return head(norm3(x));
  }

  Moves moves;
  torch::nn::Embedding tokens{register_module("tokens", torch::nn::Embedding(kVocabulary, kWidth))};
  torch::nn::LayerNorm norm1{register_module("norm1", layer_norm())};
  torch::nn::Linear query{register_module("query", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Linear key{register_module("key", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Linear value{register_module("value", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::LayerNorm norm2{register_module("norm2", layer_norm())};
  torch::nn::Linear up{register_module("up", torch::nn::Linear(kWidth, kHidden))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(kHidden, kWidth))};
  torch::nn::LayerNorm norm3{register_module("norm3", layer_norm())};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(kWidth, kVocabulary))};
};

Moves tensor_parallel_moves(const DeviceMesh& mesh) {
  const auto whole = [mesh](const at::Tensor& x) {
    return redistribute(x, along(mesh, Shard(0), Replicate()));
  };
  return {whole, whole, whole};
}

Model::Model(Moves moves) : layers_(std::make_shared<Layers>(std::move(moves))) {
  const at::NoGradGuard guard;
  double phase = 0;
  for (at::Tensor& parameter : layers_->parameters()) {
    parameter.copy_(waves(parameter.sizes(), phase += 0.9));
  }
}

Model::~Model() = default;

void Model::distribute(const DeviceMesh& mesh, const Placement& vocabulary) {
  distribute_module(*layers_, mesh, [&](const std::string& name, const at::Tensor&) {
    return along(mesh, Replicate(), along_tp(name, vocabulary));
  });
}

at::Tensor Model::loss(const Batch& batch) {
  const at::Tensor logits = layers_->forward(batch.words);
  return at::cross_entropy_loss(logits.view({-1, kVocabulary}), batch.targets.view({-1}));
}

torch::nn::Module& Model::module() { return *layers_; }

Batch plain_batch() {
  const at::Tensor all = at::arange(kBatch * kSequence, at::kLong).reshape({kBatch, kSequence});
  return {(all * 5 + 2).remainder(kVocabulary), (all * 7 + 1).remainder(kVocabulary)};
}

Batch distributed_batch(const DeviceMesh& mesh) {
  const Batch plain = plain_batch();
  const Placements by_batch = along(mesh, Shard(0), Replicate());
  return {distribute_tensor(plain.words, mesh, by_batch),
          distribute_tensor(plain.targets, mesh, by_batch)};
}

Placements along(const DeviceMesh& mesh, const Placement& dp, const Placement& tp) {
  Placements placements;
  for (const MeshAxis& axis : mesh.axes()) placements.push_back(axis.name == "dp" ? dp : tp);
  return placements;
}

at::Tensor waves(at::IntArrayRef shape, double phase) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kFloat) * 1.7 + phase).sin().reshape(shape) * 0.4;
}

}  // namespace tegula::small
