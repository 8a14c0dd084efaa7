#include "tegula/parallel/adamw.h"

#include <ATen/core/grad_mode.h>

#include "tegula/parallel/optimizer_tiles.h"

namespace tegula {

using namespace inner;

at::Tensor AdamW::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  std::vector<std::vector<ParameterWithGradient>> groups;
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) {
    groups.push_back(with_gradients(group.params()));
  }
  for (std::size_t k = 0; k < groups.size(); ++k) {
    adamw_step(groups[k],
               static_cast<const torch::optim::AdamWOptions&>(param_groups_[k].options()), state_);
  }
  return loss;
}

}  // namespace tegula
