#include "tests/composition/network.h"

#include <ATen/ATen.h>

#include <set>

namespace tegula::composition {
namespace {

// What the axis of tp, sp and loss cuts; two ranks divide the first, not the second, and the last
// of three ranks has none of the third.
struct Sizes {
  std::int64_t width, heads, hidden, classes, length, columns;
};

Sizes sizes_of(const Settings& settings) {
  switch (settings.cuts) {
    case Cuts::Even:
      return {8, 4, 16, 12, 6, 4};
    case Cuts::Uneven:
      return {6, 3, 9, 11, 5, 3};
    case Cuts::Empty:
      return {4, 4, 4, 4, 4, 3};
  }
  return {};
}

// The same numbers everywhere, others for each seed.
at::Tensor waves(at::IntArrayRef shape, int seed) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kDouble) * 1.7 + 0.9 * seed).sin().reshape(shape);
}

struct Layer : torch::nn::Module {
  // A matrix or filters, whose rows are output features, and a bias.
  Layer(at::IntArrayRef shape, int seed) : Layer(waves(shape, seed) * 0.4, seed) {}
  // On given weights.
  Layer(const at::Tensor& given, int seed)
      : weight(register_parameter("weight", given)),
        bias(register_parameter("bias", waves({given.size(0)}, seed + 50) * 0.1)) {}

  at::Tensor linear(const at::Tensor& x) const { return at::linear(x, weight, bias); }
  at::Tensor convolution(const at::Tensor& x) const {
    return at::conv2d(x, weight, bias, /*stride=*/1, /*padding=*/1);
  }
  at::Tensor layer_norm(const at::Tensor& x) const {
    return at::layer_norm(x, weight.sizes(), weight, bias);
  }

  at::Tensor weight, bias;
};

using LayerPtr = std::shared_ptr<Layer>;
using Shape = std::vector<std::int64_t>;

struct Block : torch::nn::Module {
  Block(const Sizes& given, int seed) : sizes(given) {
    const std::int64_t width = sizes.width;
    const auto layer = [&](const char* name, at::IntArrayRef shape) {
      return register_module(name, std::make_shared<Layer>(shape, ++seed));
    };
    norm1 = layer("norm1", {width});
    qkv = layer("qkv", {3 * width, width});
    out = layer("out", {width, width});
    norm2 = layer("norm2", {width});
    up = layer("up", {sizes.hidden, width});
    down = layer("down", {width, sizes.hidden});
  }

  at::Tensor attend(const at::Tensor& x) const {
    const std::vector<at::Tensor> parts = qkv->linear(x).chunk(3, -1);
    const auto heads = [&](const at::Tensor& part) {
      return part.reshape({x.size(0), x.size(1), sizes.heads, sizes.width / sizes.heads})
          .transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, 0.0, /*is_causal=*/true);
    return out->linear(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  at::Tensor forward(at::Tensor x, const Moves& moves) const {
    x = x + moves.leave(attend(moves.enter(norm1->layer_norm(x))));
    return x + moves.leave(down->linear(at::gelu(up->linear(moves.enter(norm2->layer_norm(x))))));
  }

  Sizes sizes;
  LayerPtr norm1, qkv, out, norm2, up, down;
};

class Transformer : public Network {
 public:
  Transformer(const Settings& settings, const Moves& moves) : Network(moves) {
    const Sizes sizes = sizes_of(settings);
    tokens_ =
        register_module("tokens", std::make_shared<Layer>(Shape{sizes.classes, sizes.width}, 1));
    for (int k = 0; k < 2; ++k) {
      const std::string name = "block" + std::to_string(k);
      blocks_.push_back(register_module(name, std::make_shared<Block>(sizes, 10 * k + 10)));
    }
    norm_ = register_module("norm", std::make_shared<Layer>(Shape{sizes.width}, 2));
    head_ = register_module(
        "head", settings.tied ? std::make_shared<Layer>(tokens_->weight, 3)
                              : std::make_shared<Layer>(Shape{sizes.classes, sizes.width}, 3));
  }

  at::Tensor logits(const at::Tensor& words) override {
    at::Tensor x = at::embedding(tokens_->weight, words);
    // the bias belongs to words, as the table does
    x = x + at::embedding(tokens_->bias.unsqueeze(1), words);
    x = moves().begin(x);
    for (const auto& block : blocks_) x = block->forward(x, moves());
    x = head_->linear(moves().head(norm_->layer_norm(x)));
    return x.reshape({-1, x.size(-1)});
  }

 private:
  LayerPtr tokens_, norm_, head_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

class Convolutions : public Network {
 public:
  Convolutions(const Settings& settings, const Moves& moves) : Network(moves) {
    const Sizes sizes = sizes_of(settings);
    const auto layer = [&](const char* name, auto&& weight, int seed) {
      return register_module(name,
                             std::make_shared<Layer>(std::forward<decltype(weight)>(weight), seed));
    };
    stem_ = layer("stem", Shape{sizes.width, 3, 3, 3}, 1);
    const Shape wider{sizes.hidden, sizes.width, 3, 3}, back{sizes.width, sizes.hidden, 3, 3};
    up_ = layer("up", wider, 2);
    down_ = layer("down", back, 3);
    again_ = settings.tied ? layer("again", up_->weight, 4) : layer("again", wider, 4);
    down_again_ = layer("down_again", back, 5);
    head_ = layer("head", Shape{sizes.classes, sizes.width}, 6);
  }

  at::Tensor logits(const at::Tensor& images) override {
    at::Tensor x = at::gelu(stem_->convolution(moves().begin(images)));
    x = x + pair(x, *up_, *down_);
    x = x + pair(x, *again_, *down_again_);
    return head_->linear(moves().head(x.mean({2, 3})));
  }

 private:
  at::Tensor pair(const at::Tensor& x, const Layer& up, const Layer& down) const {
    return moves().leave(down.convolution(at::gelu(up.convolution(moves().enter(x)))));
  }

  LayerPtr stem_, up_, down_, again_, down_again_, head_;
};

// The samples are cut dp times, each part fsdp times; with Empty one rank has none.
std::int64_t samples_of(const Settings& settings, int part) {
  const std::int64_t ranks = settings.data_ranks();
  switch (settings.cuts) {
    case Cuts::Even:
      return 2 * ranks;
    case Cuts::Uneven:
      return ranks == 1 ? 3 : 2 * ranks - 1 - part % 2;
    case Cuts::Empty:
      return ranks == 1 ? 2 : ranks - 1;
  }
  return 0;
}

}  // namespace

std::shared_ptr<Network> make_network(const Settings& settings, const Moves& moves) {
  std::shared_ptr<Network> network;
  if (settings.net == Net::Transformer) {
    network = std::make_shared<Transformer>(settings, moves);
  } else {
    network = std::make_shared<Convolutions>(settings, moves);
  }
  if (settings.numbers != Numbers::F64) network->to(at::kFloat);
  return network;
}

ParallelPlan plan_of(const Settings& settings) {
  const bool is_transformer = settings.net == Net::Transformer;
  ParallelPlan plan;
  if (settings.tp > 0 && is_transformer) {
    plan = {{"*.qkv", PackedColwise(3)},
            {"*.out", Rowwise()},
            {"*.up", Colwise()},
            {"*.down", Rowwise()}};
  } else if (settings.tp > 0) {
    plan = {
        {"up", Colwise()}, {"again", Colwise()}, {"down", Rowwise()}, {"down_again", Rowwise()}};
  }
  if (settings.loss > 0) {
    if (is_transformer) plan.emplace_back("tokens", VocabularyCut());
    plan.emplace_back("head", Colwise());
  }
  return plan;
}

std::int64_t sequence_dim(const Settings& settings) {
  return settings.net == Net::Transformer ? 1 : 2;
}

std::vector<at::Tensor> distinct_parameters(const torch::nn::Module& module) {
  std::set<c10::TensorImpl*> seen;
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& one : module.parameters()) {
    if (seen.insert(one.unsafeGetTensorImpl()).second) parameters.push_back(one);
  }
  return parameters;
}

Batch batch_of(const Settings& settings, int step, int part) {
  const Sizes sizes = sizes_of(settings);
  const std::int64_t samples = samples_of(settings, part);
  const int seed = 100 + 10 * step + part;
  if (settings.net == Net::Transformer) {
    const auto words = [&](int salt) {
      return (waves({samples, sizes.length}, seed + salt) * 1e4)
          .to(at::kLong)
          .remainder(sizes.classes);
    };
    return {words(0), words(3)};
  }
  const at::Tensor images = waves({samples, 3, sizes.length, sizes.columns}, seed);
  return {settings.numbers == Numbers::F64 ? images : images.to(at::kFloat),
          (waves({samples}, seed) * 1e4).to(at::kLong).remainder(sizes.classes)};
}

}  // namespace tegula::composition
