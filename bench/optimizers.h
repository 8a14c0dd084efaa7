// Optimizer steps over parameters that have gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tegula::bench {

// One step of torch::optim::AdamW, which goes from parameter to parameter.
std::function<void()> adamw_by_parameter(const std::vector<at::Tensor>& parameters);

// The same step by the fused kernel, which takes all parameters in one call.
std::function<void()> adamw_fused(const std::vector<at::Tensor>& parameters);

}  // namespace tegula::bench
