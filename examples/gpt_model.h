// A small GPT of libtorch's own modules. Nothing in it knows of ranks or meshes: the same code runs
// on plain tensors and on distributed ones.
#pragma once

#include <torch/torch.h>

#include <string>

namespace gpt {

struct Shape {
  std::int64_t vocabulary = 0;
  std::int64_t length = 64;  // the most characters that it looks back at
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
};

struct Attention : torch::nn::Module {
  explicit Attention(const Shape& shape)
      : heads(shape.heads),
        query(register_module("query", torch::nn::Linear(shape.width, shape.width))),
        key(register_module("key", torch::nn::Linear(shape.width, shape.width))),
        value(register_module("value", torch::nn::Linear(shape.width, shape.width))),
        proj(register_module("proj", torch::nn::Linear(shape.width, shape.width))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto by_head = [&](torch::nn::Linear& part) {
      return part(x).unflatten(-1, {heads, x.size(2) / heads}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        by_head(query), by_head(key), by_head(value), {}, 0.0, /*is_causal=*/true);
    return proj(mixed.transpose(1, 2).flatten(2));
  }

  std::int64_t heads;
  torch::nn::Linear query, key, value, proj;
};

struct Block : torch::nn::Module {
  explicit Block(const Shape& shape)
      : norm1(register_module("norm1", norm(shape))),
        norm2(register_module("norm2", norm(shape))),
        attention(register_module("attention", std::make_shared<Attention>(shape))),
        up(register_module("up", torch::nn::Linear(shape.width, 4 * shape.width))),
        down(register_module("down", torch::nn::Linear(4 * shape.width, shape.width))) {}

  static torch::nn::LayerNorm norm(const Shape& shape) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width}));
  }

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = input + attention->forward(norm1(input));
    return x + down(at::gelu(up(norm2(x))));
  }

  torch::nn::LayerNorm norm1, norm2;
  std::shared_ptr<Attention> attention;
  torch::nn::Linear up, down;
};

struct Model : torch::nn::Module {
  explicit Model(const Shape& shape_)
      : shape(shape_),
        tokens(register_module("tokens", torch::nn::Embedding(shape.vocabulary, shape.width))),
        places(register_module("places", torch::nn::Embedding(shape.length, shape.width))) {
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      blocks->push_back(std::make_shared<Block>(shape));
    }
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
    for (const torch::nn::Embedding& embedding : {tokens, places}) {
      torch::nn::init::normal_(embedding->weight, 0.0, 0.1);
    }
  }

  // Characters [batch, length] to scores of the character that follows each: [..., vocabulary].
  at::Tensor forward(const at::Tensor& characters) {
    at::Tensor x = tokens(characters) + places->weight.narrow(0, 0, characters.size(1));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head(norm(x));
  }

  at::Tensor loss(const at::Tensor& characters, const at::Tensor& next) {
    return at::cross_entropy_loss(forward(characters).flatten(0, 1), next.flatten());
  }

  Shape shape;
  torch::nn::Embedding tokens, places;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{Block::norm(shape)};
  torch::nn::Linear head{torch::nn::Linear(shape.width, shape.vocabulary)};
};

// The same weights in every process that builds it with this seed.
inline std::shared_ptr<Model> build(const Shape& shape, std::uint64_t seed) {
  torch::manual_seed(seed);
  return std::make_shared<Model>(shape);
}

}  // namespace gpt
