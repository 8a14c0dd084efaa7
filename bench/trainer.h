// Training steps on one of the models of networks.h.
#pragma once

#include <memory>

#include "bench/networks.h"
#include "tegula/mesh/device_mesh.h"

namespace tegula::bench {

class Trainer {
 public:
  // On plain tensors.
  explicit Trainer(Model model);
  // On DTensors over a mesh of one axis, kAxis; all ranks of the mesh make it and step together.
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
