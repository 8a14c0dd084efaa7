#include "bench/networks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn.h>

#include <cmath>
#include <vector>

#include "tegula/parallel/parallelize_module.h"

namespace tegula::bench {
namespace {

namespace nn = torch::nn;

constexpr std::uint64_t kDataSeed = 1000;

struct MlpSize {
  std::int64_t width, batch, layers;
};
struct GptSize {
  std::int64_t layers, width, heads, tokens, batch, vocabulary;
};

at::Generator generator(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }

// Matrices get random numbers, seeded by their place in the list, and vectors stay as they are or,
// if they are biases, become zero.
void set_weights(nn::Module& module, double deviation) {
  const at::NoGradGuard guard;
  std::uint64_t seed = 0;
  for (auto& item : module.named_parameters()) {
    at::Tensor parameter = item.value();
    if (parameter.dim() == 2) {
      parameter.copy_(at::randn(parameter.sizes(), generator(seed)) * deviation);
    } else if (item.key().ends_with("bias")) {
      parameter.zero_();
    }
    ++seed;
  }
}

bool has(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

Placement by_columns() { return Shard(0); }
Placement by_rows(const std::string& name) {
  return has(name, "weight") ? Placement(Shard(1)) : Placement(Replicate());
}

class Mlp : public Network {
 public:
  explicit Mlp(const MlpSize& size) : size_(size) {
    for (std::int64_t i = 0; i < size.layers; ++i)
      layers_.push_back(
          register_module("layer" + std::to_string(i), nn::Linear(size.width, size.width)));
    set_weights(*this, std::sqrt(2.0 / static_cast<double>(size.width)));
  }

  at::Tensor loss(const Data& data) override {
    at::Tensor x = layers_[0](data.input);
    for (std::size_t i = 1; i < layers_.size(); ++i) x = layers_[i](at::relu(x));
    return at::mse_loss(x, data.target);
  }

  Data data() const override {
    return {at::randn({size_.batch, size_.width}, generator(kDataSeed)),
            at::randn({size_.batch, size_.width}, generator(kDataSeed + 1)),
            {}};
  }

  Placement place(const std::string& name, Split) const override {
    const bool even = has(name, "layer0") || has(name, "layer2");
    return even ? by_columns() : by_rows(name);
  }

 private:
  MlpSize size_;
  std::vector<nn::Linear> layers_;
};

nn::LayerNorm norm(std::int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

// Where activations are to be; plain ones stay as they are.
using Where = at::Tensor (*)(const at::Tensor& x);
at::Tensor as_it_is(const at::Tensor& x) { return x; }
at::Tensor by_tokens(const at::Tensor& x) { return placed(x, kAxis, Shard(1)); }
at::Tensor everywhere(const at::Tensor& x) { return placed(x, kAxis, Replicate()); }

struct Block : nn::Module {
  explicit Block(const GptSize& size, Where between_layers, Where in_layers)
      : heads(size.heads), between(between_layers), within(in_layers) {
    const std::int64_t width = size.width;
    norm1 = register_module("norm1", norm(width));
    query = register_module("query", nn::Linear(width, width));
    key = register_module("key", nn::Linear(width, width));
    value = register_module("value", nn::Linear(width, width));
    proj = register_module("proj", nn::Linear(width, width));
    norm2 = register_module("norm2", norm(width));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
  }

  at::Tensor attention(const at::Tensor& x) {
    const auto by_head = [&](nn::Linear& part) {
      return part(x).view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        by_head(query), by_head(key), by_head(value), {}, 0.0, /*is_causal=*/true);
    return proj(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  at::Tensor forward(at::Tensor x) {
    x = x + between(attention(within(norm1(x))));
    return x + between(down(at::gelu(up(within(norm2(x))))));
  }

  std::int64_t heads;
  Where between, within;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, proj{nullptr}, up{nullptr},
      down{nullptr};
};

class Gpt : public Network {
 public:
  Gpt(const GptSize& size, Split split)
      : size_(size),
        between_(split == Split::Sequence ? by_tokens : as_it_is),
        within_(split == Split::Sequence ? everywhere : as_it_is) {
    tokens_ = register_module("tokens", nn::Embedding(size.vocabulary, size.width));
    places_ = register_module("places", nn::Embedding(size.tokens, size.width));
    for (std::int64_t i = 0; i < size.layers; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i),
                                        std::make_shared<Block>(size, between_, within_)));
    norm_ = register_module("norm", norm(size.width));
    head_ = register_module("head", nn::Linear(size.width, size.vocabulary));
    set_weights(*this, 0.02);
  }

  at::Tensor loss(const Data& data) override {
    at::Tensor x = between_(tokens_(data.input) + places_(data.numbers));
    for (const std::shared_ptr<Block>& block : blocks_) x = block->forward(x);
    const at::Tensor logits = head_(within_(norm_(x)));
    return at::cross_entropy_loss(logits.reshape({-1, size_.vocabulary}),
                                  data.target.reshape({-1}));
  }

  Data data() const override {
    const auto words = [&](std::uint64_t seed) {
      return at::randint(size_.vocabulary, {size_.batch, size_.tokens}, generator(seed), at::kLong);
    };
    return {words(kDataSeed), words(kDataSeed + 1), at::arange(size_.tokens, at::kLong)};
  }

  Placement place(const std::string& name, Split split) const override {
    for (const char* part : {"query", "key", "value", "up"}) {
      if (has(name, part)) return by_columns();
    }
    if (has(name, "proj") || has(name, "down")) return by_rows(name);
    if (has(name, "head") && split == Split::TensorAndVocabulary) return by_columns();
    return Replicate();
  }

 private:
  GptSize size_;
  Where between_, within_;
  nn::Embedding tokens_{nullptr}, places_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<Network> network(Model model, Split split) {
  switch (model) {
    case Model::Mlp:
      return std::make_shared<Mlp>(MlpSize{.width = 1024, .batch = 64, .layers = 4});
    case Model::MlpOfOnes:
      return std::make_shared<Mlp>(MlpSize{.width = 1, .batch = 1, .layers = 4});
    case Model::Gpt:
      return std::make_shared<Gpt>(
          GptSize{
              .layers = 6, .width = 256, .heads = 4, .tokens = 128, .batch = 8, .vocabulary = 4096},
          split);
    case Model::GptWide:
      return std::make_shared<Gpt>(GptSize{.layers = 4,
                                           .width = 768,
                                           .heads = 12,
                                           .tokens = 128,
                                           .batch = 4,
                                           .vocabulary = 4096},
                                   split);
    case Model::GptOfOnes:
      return std::make_shared<Gpt>(
          GptSize{.layers = 6, .width = 1, .heads = 1, .tokens = 1, .batch = 1, .vocabulary = 1},
          split);
  }
  return nullptr;
}

}  // namespace tegula::bench
