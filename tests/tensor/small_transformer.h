// A transformer of one block, of libtorch's own modules and of sizes that two ranks divide, and how
// it is cut over a mesh with an axis "dp" (the batch), an axis "tp" (heads and hidden units) or
// both.
#pragma once

#include <memory>
#include <string>

#include "tegula/tensor/module.h"

namespace tegula::small {

inline constexpr std::int64_t kVocabulary = 24, kWidth = 16, kHeads = 4, kHidden = 32;
inline constexpr std::int64_t kBatch = 4, kSequence = 8;

// Where activations go on their way. By itself everything is left to the rules.
struct Moves {
  using Move = std::function<at::Tensor(const at::Tensor&)>;
  Move enter = [](const at::Tensor& x) { return x; };  // into attention and into the feed-forward
  Move leave = [](const at::Tensor& x) { return x; };  // out of them
  Move begin = [](const at::Tensor& x) { return x; };  // out of the tokens' table
};

// By explicit redistributes: the sums of row-parallel layers forward, those of column-parallel ones
// backward.
Moves tensor_parallel_moves(const DeviceMesh& mesh);

struct Batch {
  at::Tensor words, targets;
};

class Model {
 public:
  // The same numbers on every rank. `vocabulary` says where tokens' table and the head go along tp.
  explicit Model(Moves moves = {});
  ~Model();

  void distribute(const DeviceMesh& mesh, const Placement& vocabulary = Replicate());
  at::Tensor loss(const Batch& batch);
  torch::nn::Module& module();

 private:
  struct Layers;
  std::shared_ptr<Layers> layers_;
};

Batch plain_batch();
// dp cuts the batch.
Batch distributed_batch(const DeviceMesh& mesh);

// One placement for "dp" and one for "tp", of which the mesh may have one only.
Placements along(const DeviceMesh& mesh, const Placement& dp, const Placement& tp);

// The same numbers in every process and thread.
at::Tensor waves(at::IntArrayRef shape, double phase = 0);

}  // namespace tegula::small
