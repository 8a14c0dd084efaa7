#include "tegula/tensor/save.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/operators/call.h"

namespace tegula::inner {
namespace {

void check(const std::string& name, const at::Tensor& tensor) {
  if (!payload_in(tensor)) return;
  throw UsageError("torch::save cannot save what is distributed: each rank holds a part of it")
      .fact("tensor", name.empty() ? described(tensor) : in_quotes(name) + ", " + described(tensor))
      .hint(
          "all ranks call tegula::full_tensor(x), one saves what that gives: docs/porting.md, "
          "Saving");
}

}  // namespace

void check_can_be_saved(const at::Tensor& tensor) { check("", tensor); }

void check_can_be_saved(const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) check(std::to_string(i), tensors[i]);
}

void check_can_be_saved(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) check(item.key(), item.value());
  for (const auto& item : module.named_buffers()) check(item.key(), item.value());
}

// Its state is where its parameters are.
void check_can_be_saved(const torch::optim::Optimizer& optimizer) {
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) check("", parameter);
  }
}

}  // namespace tegula::inner
