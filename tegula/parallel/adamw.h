// AdamW in one pass: libtorch's options, state and results, its fused kernel over all tiles.
//
//   AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-4).weight_decay(0.1));
//   torch::optim::StepLR schedule(optimizer, 1000, 0.9);
#pragma once

#include <torch/optim/adamw.h>

namespace tegula {

// Its moments are cut as the parameters are, so a step sends nothing but the reductions that
// gradients still owe (reduce_gradients), before anything is written. Parameters may be on
// different meshes, plain ones among them. Everything else is that of torch::optim::AdamW:
// parameter groups, amsgrad, schedules, distribute_optimizer_state. UsageError, before anything is
// written: a gradient that is sparse, or plain beside a parameter that is a DTensor.
class AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace tegula
