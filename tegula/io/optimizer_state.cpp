#include "tegula/io/optimizer_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/factories.h"

namespace tegula::inner {

ParameterNames::ParameterNames(const torch::nn::Module& module, std::string optimizer)
    : optimizer_(std::move(optimizer)) {
  for (const auto& item : module.named_parameters()) {
    names_.try_emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
}

std::string ParameterNames::of(const at::Tensor& parameter) const {
  const auto found = names_.find(parameter.unsafeGetTensorImpl());
  if (found != names_.end()) return found->second;
  throw UsageError("an optimizer has a parameter that the module does not have")
      .fact("optimizer", in_quotes(optimizer_))
      .hint("add it with the module whose parameters it was given");
}

at::Tensor fresh_state(const at::Tensor& parameter, const Shape& shape, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  if (parameter.sizes() == at::IntArrayRef(shape)) {
    return at::zeros_like(parameter.detach(), at::TensorOptions(type));
  }
  if (!is_dtensor(parameter)) {
    return at::zeros(shape, at::TensorOptions(type).device(parameter.device()));
  }
  const DeviceMesh mesh = mesh_of(parameter);
  Placements placements(mesh.ndim(), Replicate());
  if (!shape.empty()) placements.back() = Shard(0);
  return zeros(shape, mesh, placements, at::TensorOptions(type));
}

}  // namespace tegula::inner
