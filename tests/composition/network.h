// The two nets that are trained, written once: they run on plain tensors as on DTensors.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <vector>

#include "tegula/parallel/styles.h"
#include "tests/composition/settings.h"

namespace tegula::composition {

struct Batch {
  at::Tensor inputs;   // words [samples, sequence], or images [samples, 3, rows, columns]
  at::Tensor targets;  // classes: [samples, sequence], or [samples]
};

// Where activations go on their way. By itself everything is left where it is.
struct Moves {
  using Move = std::function<at::Tensor(const at::Tensor&)>;
  static at::Tensor stay(const at::Tensor& x) { return x; }
  Move begin = stay;  // into the blocks
  Move enter = stay;  // into a layer cut by features and the one after it
  Move leave = stay;  // out of these
  Move head = stay;   // into the head
};

class Network : public torch::nn::Module {
 public:
  explicit Network(Moves moves) : moves_(std::move(moves)) {}
  // One row per prediction, one column per class.
  virtual at::Tensor logits(const at::Tensor& inputs) = 0;

 protected:
  const Moves& moves() const { return moves_; }

 private:
  Moves moves_;
};

// The same numbers on every rank. Parameters that are tied stand in two places.
std::shared_ptr<Network> make_network(const Settings& settings, const Moves& moves = {});
// How it is cut along the axis of tp, sp and loss.
ParallelPlan plan_of(const Settings& settings);
// The dim along which sp cuts activations.
std::int64_t sequence_dim(const Settings& settings);

// Every parameter once; libtorch lists a tied one twice.
std::vector<at::Tensor> distinct_parameters(const torch::nn::Module& module);

// The samples of one micro-batch of one step, on every rank alike.
Batch batch_of(const Settings& settings, int step, int part);

}  // namespace tegula::composition
