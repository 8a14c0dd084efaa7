#include "tests/serving/plain_decoder.h"

#include <cmath>
#include <limits>

#include "tests/tensor/as_plain.h"

namespace tegula {
namespace {

std::string layer_name(std::int64_t layer) { return "model.layers." + std::to_string(layer) + "."; }

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return weight * x * at::rsqrt(x.square().mean(-1, true) + eps);
}

class Decoder {
 public:
  Decoder(const llama::Config& config, const Weights& weights)
      : config_(config), weights_(weights) {}

  at::Tensor scores(const std::vector<std::int64_t>& ids) const {
    const at::Tensor embedding = weights_.at("model.embed_tokens.weight");
    at::Tensor x = embedding.index_select(0, at::tensor(ids, at::kLong));
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string name = layer_name(layer);
      const auto normed = [&](const char* which) {
        return norm(x, weights_.at(name + which + ".weight"), config_.eps);
      };
      x = x + attention(normed("input_layernorm"), name + "self_attn.",
                        config_.windows[static_cast<std::size_t>(layer)]);
      const at::Tensor y = normed("post_attention_layernorm");
      const at::Tensor gate = linear(y, name + "mlp.gate_proj");
      x = x + linear(gate * at::sigmoid(gate) * linear(y, name + "mlp.up_proj"),
                     name + "mlp.down_proj");
    }
    x = norm(x, weights_.at("model.norm.weight"), config_.eps);
    return at::matmul(x, (config_.is_tied ? embedding : weights_.at("lm_head.weight")).t());
  }

 private:
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const at::Tensor y = at::matmul(x, weights_.at(name + ".weight").t());
    const auto bias = weights_.find(name + ".bias");
    return bias == weights_.end() ? y : y + bias->second;
  }

  // Head by head.
  at::Tensor attention(const at::Tensor& x, const std::string& name, std::int64_t window) const {
    const std::int64_t size = config_.head_dim, length = x.size(0);
    const at::Tensor q = linear(x, name + "q_proj"), k = linear(x, name + "k_proj"),
                     v = linear(x, name + "v_proj");
    at::Tensor bars = at::zeros({length, length}, at::kDouble);
    for (std::int64_t row = 0; row < length; ++row) {
      for (std::int64_t key = 0; key < length; ++key) {
        const bool is_seen = key <= row && (window == 0 || key > row - window);
        if (!is_seen) bars[row][key] = -std::numeric_limits<double>::infinity();
      }
    }
    std::vector<at::Tensor> heads;
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      const std::int64_t shared = head / (config_.heads / config_.key_heads);
      const at::Tensor query = turned(q.narrow(1, head * size, size), name + "q_norm.weight");
      const at::Tensor key = turned(k.narrow(1, shared * size, size), name + "k_norm.weight");
      const at::Tensor scores =
          at::matmul(query, key.t()) / std::sqrt(static_cast<double>(size)) + bars;
      heads.push_back(at::matmul(at::softmax(scores, -1), v.narrow(1, shared * size, size)));
    }
    return linear(at::cat(heads, 1), name + "o_proj");
  }

  at::Tensor turned(at::Tensor x, const std::string& norm_name) const {
    if (config_.norms_heads) x = norm(x, weights_.at(norm_name), config_.eps);
    const std::int64_t half = config_.head_dim / 2;
    const at::Tensor angles =
        at::outer(at::arange(x.size(0), at::kDouble), at::tensor(config_.frequencies, at::kDouble));
    const at::Tensor a = x.narrow(1, 0, half), b = x.narrow(1, half, half);
    return at::cat({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, 1);
  }

  const llama::Config& config_;
  const Weights& weights_;
};

}  // namespace

Weights random_weights(const llama::Config& config) {
  Weights weights;
  std::uint64_t seed = 0;
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in,
                          llama::Bias bias = llama::Bias::Without) {
    weights[name + ".weight"] = 0.5 * numbers({out, in}, ++seed);
    if (bias == llama::Bias::With) weights[name + ".bias"] = numbers({out}, ++seed);
  };
  const auto vector = [&](const std::string& name, std::int64_t size) {
    weights[name + ".weight"] = 1 + 0.3 * numbers({size}, ++seed);
  };
  const std::int64_t queries = config.heads * config.head_dim;
  const std::int64_t keys = config.key_heads * config.head_dim;
  matrix("model.embed_tokens", config.vocabulary, config.width);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = layer_name(layer);
    vector(name + "input_layernorm", config.width);
    vector(name + "post_attention_layernorm", config.width);
    matrix(name + "self_attn.q_proj", queries, config.width, config.query_bias);
    matrix(name + "self_attn.k_proj", keys, config.width, config.query_bias);
    matrix(name + "self_attn.v_proj", keys, config.width, config.query_bias);
    matrix(name + "self_attn.o_proj", config.width, queries, config.output_bias);
    if (config.norms_heads) {
      vector(name + "self_attn.q_norm", config.head_dim);
      vector(name + "self_attn.k_norm", config.head_dim);
    }
    matrix(name + "mlp.gate_proj", config.hidden, config.width, config.mlp_bias);
    matrix(name + "mlp.up_proj", config.hidden, config.width, config.mlp_bias);
    matrix(name + "mlp.down_proj", config.width, config.hidden, config.mlp_bias);
  }
  vector("model.norm", config.width);
  if (!config.is_tied) matrix("lm_head", config.vocabulary, config.width);
  return weights;
}

at::Tensor plain_scores(const llama::Config& config, const Weights& weights,
                        const std::vector<std::int64_t>& ids) {
  return Decoder(config, weights).scores(ids);
}

}  // namespace tegula
