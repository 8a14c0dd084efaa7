// The models that the group "train" trains, on fixed data from fixed weights: bench/peers/train.py
// has the same ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tegula/placement/placement.h"

namespace tegula::bench {

enum class Model {
  Mlp,        // four layers of 1024 x 1024 with relu between them, batch 64, mean square loss
  Gpt,        // 6 pre-norm layers of width 256, 4 heads, 128 tokens, batch 8, vocabulary 4096
  GptWide,    // 4 layers of width 768, 12 heads, 128 tokens, batch 4, vocabulary 4096
  MlpOfOnes,  // the Mlp and the Gpt, of tensors with one element
  GptOfOnes,
};

enum class Split {
  Tensor,               // weights by columns, then rows; embeddings and head are whole
  TensorAndVocabulary,  // the head and the loss by words too
  Sequence,             // as Tensor, and what is between the layers by tokens
  Batch,                // the data; weights are whole
  Full,                 // the data, and weights, gradients and state too
};

// What a model computes its loss from. `numbers` are those of the tokens.
struct Data {
  at::Tensor input, target, numbers;
};

class Network : public torch::nn::Module {
 public:
  virtual at::Tensor loss(const Data& data) = 0;
  // The same in every process and language.
  virtual Data data() const = 0;
  // How the parameter lies over the axis if the weights are split.
  virtual Placement place(const std::string& name, Split split) const = 0;
};

// With the same weights in every process and language. `split` matters on DTensors only, over an
// axis called "ranks".
std::shared_ptr<Network> network(Model model, Split split);

inline constexpr const char* kAxis = "ranks";

}  // namespace tegula::bench
