#include "bench/trainer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn.h>

#include <cmath>

#include "bench/optimizers.h"
#include "tegula/tensor/module.h"

namespace tegula::bench {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kMlpWidth = 1024, kMlpBatch = 64, kMlpLayers = 4;
constexpr std::int64_t kWidth = 256, kHeads = 4, kTokens = 128, kBatch = 8, kVocabulary = 4096,
                       kLayers = 6;
constexpr std::uint64_t kDataSeed = 1000;

// The same numbers in every process and language.
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

// What a model computes its loss from.
struct Data {
  at::Tensor input, target, numbers;
};

class Network : public nn::Module {
 public:
  virtual at::Tensor loss(const Data& data) = 0;
  virtual Data data() const = 0;
  // How the parameter lies over the axis if the weights are split.
  virtual Placement place(const std::string& name, Split split) const = 0;
};

bool has(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

Placement by_columns() { return Shard(0); }
Placement by_rows(const std::string& name) {
  return has(name, "weight") ? Placement(Shard(1)) : Placement(Replicate());
}

class Mlp : public Network {
 public:
  Mlp() {
    for (std::int64_t i = 0; i < kMlpLayers; ++i)
      layers_.push_back(
          register_module("layer" + std::to_string(i), nn::Linear(kMlpWidth, kMlpWidth)));
    set_weights(*this, std::sqrt(2.0 / static_cast<double>(kMlpWidth)));
  }

  at::Tensor loss(const Data& data) override {
    at::Tensor x = layers_[0](data.input);
    for (std::size_t i = 1; i < layers_.size(); ++i) x = layers_[i](at::relu(x));
    return at::mse_loss(x, data.target);
  }

  Data data() const override {
    return {at::randn({kMlpBatch, kMlpWidth}, generator(kDataSeed)),
            at::randn({kMlpBatch, kMlpWidth}, generator(kDataSeed + 1)),
            {}};
  }

  Placement place(const std::string& name, Split) const override {
    const bool even = has(name, "layer0") || has(name, "layer2");
    return even ? by_columns() : by_rows(name);
  }

 private:
  std::vector<nn::Linear> layers_;
};

nn::LayerNorm norm() { return nn::LayerNorm(nn::LayerNormOptions({kWidth})); }

struct Block : nn::Module {
  nn::LayerNorm norm1{register_module("norm1", norm())};
  nn::Linear query{register_module("query", nn::Linear(kWidth, kWidth))};
  nn::Linear key{register_module("key", nn::Linear(kWidth, kWidth))};
  nn::Linear value{register_module("value", nn::Linear(kWidth, kWidth))};
  nn::Linear proj{register_module("proj", nn::Linear(kWidth, kWidth))};
  nn::LayerNorm norm2{register_module("norm2", norm())};
  nn::Linear up{register_module("up", nn::Linear(kWidth, 4 * kWidth))};
  nn::Linear down{register_module("down", nn::Linear(4 * kWidth, kWidth))};

  at::Tensor attention(const at::Tensor& x) {
    const auto heads = [&](nn::Linear& part) {
      return part(x).view({x.size(0), x.size(1), kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads(query), heads(key), heads(value), {}, 0.0, /*is_causal=*/true);
    return proj(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  at::Tensor forward(at::Tensor x) {
    x = x + attention(norm1(x));
    return x + down(at::gelu(up(norm2(x))));
  }
};

class Gpt : public Network {
 public:
  Gpt() {
    tokens_ = register_module("tokens", nn::Embedding(kVocabulary, kWidth));
    places_ = register_module("places", nn::Embedding(kTokens, kWidth));
    for (std::int64_t i = 0; i < kLayers; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    norm_ = register_module("norm", norm());
    head_ = register_module("head", nn::Linear(kWidth, kVocabulary));
    set_weights(*this, 0.02);
  }

  at::Tensor loss(const Data& data) override {
    at::Tensor x = tokens_(data.input) + places_(data.numbers);
    for (const std::shared_ptr<Block>& block : blocks_) x = block->forward(x);
    const at::Tensor logits = head_(norm_(x));
    return at::cross_entropy_loss(logits.reshape({-1, kVocabulary}), data.target.reshape({-1}));
  }

  Data data() const override {
    return {at::randint(kVocabulary, {kBatch, kTokens}, generator(kDataSeed), at::kLong),
            at::randint(kVocabulary, {kBatch, kTokens}, generator(kDataSeed + 1), at::kLong),
            at::arange(kTokens, at::kLong)};
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
  nn::Embedding tokens_{nullptr}, places_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
};

std::shared_ptr<Network> network(Model model) {
  if (model == Model::Mlp) return std::make_shared<Mlp>();
  return std::make_shared<Gpt>();
}

DistributeOptions same_everywhere() {
  DistributeOptions options;
  options.source = std::nullopt;
  return options;
}

void distribute(Network& network, Split split, const DeviceMesh& mesh) {
  const auto place = [&](const std::string& name, const at::Tensor&) {
    return Placements{split == Split::Batch ? Replicate() : network.place(name, split)};
  };
  distribute_module(network, mesh, place, same_everywhere());
}

Data distributed(const Data& data, Split split, const DeviceMesh& mesh) {
  const Placements whole{Replicate()};
  const Placements examples = split == Split::Batch ? Placements{Shard(0)} : whole;
  const auto placed = [&](const at::Tensor& tensor, const Placements& placements) {
    if (!tensor.defined()) return tensor;
    return distribute_tensor(tensor, mesh, placements, same_everywhere());
  };
  return {placed(data.input, examples), placed(data.target, examples), placed(data.numbers, whole)};
}

}  // namespace

struct Trainer::State {
  std::shared_ptr<Network> network;
  Data data;
  std::function<void()> update;
  at::Tensor loss;

  State(std::shared_ptr<Network> what, Data from)
      : network(std::move(what)),
        data(std::move(from)),
        update(adamw_fused(network->parameters())) {}
};

Trainer::Trainer(Model model) {
  const std::shared_ptr<Network> plain = network(model);
  state_ = std::make_unique<State>(plain, plain->data());
}

Trainer::Trainer(Model model, Split split, const DeviceMesh& mesh) {
  const std::shared_ptr<Network> ours = network(model);
  distribute(*ours, split, mesh);
  state_ = std::make_unique<State>(ours, distributed(ours->data(), split, mesh));
}

Trainer::~Trainer() = default;

void Trainer::step() {
  state_->network->zero_grad();
  const at::Tensor loss = state_->network->loss(state_->data);
  loss.backward();
  state_->update();
  state_->loss = loss.detach();
}

double Trainer::loss() const {
  const at::Tensor& loss = state_->loss;
  return (is_dtensor(loss) ? full_tensor(loss) : loss).item<double>();
}

}  // namespace tegula::bench
