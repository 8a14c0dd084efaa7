// What the parts of states that are optimizers share.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "tegula/files/safetensors_header.h"
#include "tegula/io/state_part.h"

namespace tegula::inner {

// The names that a module has for the parameters of an optimizer.
class ParameterNames {
 public:
  ParameterNames(const torch::nn::Module& module, std::string optimizer);
  // UsageError that names the optimizer if the module does not have it.
  std::string of(const at::Tensor& parameter) const;

 private:
  std::string optimizer_;
  std::map<c10::TensorImpl*, std::string> names_;
};

// Zeros for what a checkpoint has of a parameter's state: where the parameter is, if the shape is
// the same; else, if that is distributed, by rows over its mesh. Elements are of the file's type.
at::Tensor fresh_state(const at::Tensor& parameter, const Shape& shape, at::ScalarType type);

std::shared_ptr<StatePart> lbfgs_part(std::string name, torch::optim::Optimizer& optimizer,
                                      const torch::nn::Module& module);

}  // namespace tegula::inner
