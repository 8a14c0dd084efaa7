// What optimizers do on the tiles that a rank has of parameters and their gradients.
#pragma once

#include <torch/optim/adamw.h>

#include <memory>
#include <vector>

namespace tegula::inner {

using OptimizerStates =
    ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

// To be called by all ranks when tiles of a tensor were written to, whichever have elements.
void note_write(const at::Tensor& tensor);

// The tile of a DTensor, a plain tensor itself.
at::Tensor tile_or_plain(const at::Tensor& tensor);

// A parameter that has a gradient, which is placed as the parameter is.
struct ParameterWithGradient {
  at::Tensor parameter, gradient;
};
// Those of a list that have one; reductions that gradients owe are done. UsageError: one that is
// sparse, or plain beside a parameter that is a DTensor.
std::vector<ParameterWithGradient> with_gradients(const std::vector<at::Tensor>& parameters);

// A step of AdamW for these parameters; sends nothing.
void adamw_step(const std::vector<ParameterWithGradient>& parameters,
                const torch::optim::AdamWOptions& options, OptimizerStates& states);

}  // namespace tegula::inner
