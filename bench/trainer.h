// The models that the group "train" trains, on fixed data from fixed weights: bench/peers/train.py
// has the same ones.
#pragma once

#include <memory>

#include "tegula/mesh/device_mesh.h"

namespace tegula::bench {

enum class Model {
  Mlp,  // four layers of 1024 x 1024 with relu between them, batch 64, mean square loss
  Gpt,  // 6 pre-norm layers of width 256, 4 heads, 128 tokens, batch 8, vocabulary 4096
};

enum class Split {
  Tensor,               // weights by columns, then rows; embeddings and head are whole
  TensorAndVocabulary,  // the head and the loss by words too
  Batch,                // the data; weights are whole
};

class Trainer {
 public:
  // On plain tensors.
  explicit Trainer(Model model);
  // On DTensors over a mesh of one axis; all ranks of the mesh make it and step together.
  Trainer(Model model, Split split, const DeviceMesh& mesh);
  ~Trainer();

  // Forward, loss, backward, AdamW.
  void step();
  // Of the last step, before its update. Communicates.
  double loss() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tegula::bench
