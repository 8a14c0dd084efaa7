#include "bench/optimizers.h"

#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <memory>

namespace tegula::bench {
namespace {

constexpr double kRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.999, kDecay = 0.01, kEpsilon = 1e-8;

// What the fused kernel keeps: both moments, and how many steps were made.
struct FusedAdamW {
  std::vector<at::Tensor> parameters, first, second, steps;

  explicit FusedAdamW(const std::vector<at::Tensor>& list) : parameters(list) {
    const at::NoGradGuard guard;
    for (const at::Tensor& parameter : list) {
      first.push_back(at::zeros_like(parameter));
      second.push_back(at::zeros_like(parameter));
      steps.push_back(at::zeros({}));
    }
  }

  void step() {
    const at::NoGradGuard guard;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(parameters, gradients, first, second, {}, steps, kRate, kBeta1, kBeta2,
                      kDecay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
};

}  // namespace

std::function<void()> adamw_by_parameter(const std::vector<at::Tensor>& parameters) {
  const auto options = torch::optim::AdamWOptions(kRate).weight_decay(kDecay).eps(kEpsilon);
  const auto optimizer = std::make_shared<torch::optim::AdamW>(parameters, options);
  return [optimizer] { optimizer->step(); };
}

std::function<void()> adamw_fused(const std::vector<at::Tensor>& parameters) {
  const auto optimizer = std::make_shared<FusedAdamW>(parameters);
  return [optimizer] { optimizer->step(); };
}

}  // namespace tegula::bench
