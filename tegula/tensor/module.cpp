// The idea: set_data changes what a tensor is under all of its handles, so nothing needs to be
// replaced and nobody needs to be told.
#include "tegula/tensor/module.h"

#include <torch/nn/module.h>
#include <torch/optim.h>

#include <set>

#include "tegula/base/error.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/tensor/factories.h"

namespace tegula {
namespace {

class Converter {
 public:
  Converter(const DeviceMesh& mesh, const DistributeOptions& options)
      : mesh_(mesh), options_(options) {}

  void convert(at::Tensor tensor, const Placements& placements) {
    if (!tensor.defined() || !seen_.insert(tensor.unsafeGetTensorImpl()).second) return;
    if (!is_dtensor(tensor)) become(tensor, placements);
    at::Tensor& grad = tensor.mutable_grad();
    if (grad.defined() && !is_dtensor(grad)) {
      const Placements of_grad = with_reductions_done(spec_of(tensor)).placements();
      grad = distribute_tensor(grad.detach(), mesh_of(tensor), of_grad, options_);
    }
  }

 private:
  void become(at::Tensor& tensor, const Placements& placements) const {
    // a shape without data becomes tiles without values, for the caller to fill
    tensor.set_data(tensor.is_meta()
                        ? empty(tensor.sizes().vec(), mesh_, placements,
                                at::TensorOptions(tensor.scalar_type()))
                        : distribute_tensor(tensor.detach(), mesh_, placements, options_));
  }

  const DeviceMesh& mesh_;
  const DistributeOptions& options_;
  std::set<c10::TensorImpl*> seen_;
};

// A state tensor of the parameter's shape becomes distributed as the parameter is.
at::Tensor like_parameter(const at::Tensor& state, const at::Tensor& parameter,
                          const DistributeOptions& options) {
  if (!state.defined() || is_dtensor(state) || !is_dtensor(parameter)) return state;
  if (state.sizes() != parameter.sizes()) return state;
  return distribute_tensor(state.detach(), mesh_of(parameter), placements_of(parameter), options);
}

template <class State, class... Access>
bool convert_state(torch::optim::OptimizerParamState& state, const at::Tensor& parameter,
                   const DistributeOptions& options, Access... access) {
  auto* known = dynamic_cast<State*>(&state);
  if (!known) return false;
  ((access(*known, like_parameter(access(*known, std::nullopt), parameter, options))), ...);
  return true;
}

// Reads a member of an optimizer's state, or sets it if a value is given.
#define TEGULA_STATE(member)                                             \
  [](auto& held, const std::optional<at::Tensor>& value) -> at::Tensor { \
    if (value) held.member(*value);                                      \
    return held.member();                                                \
  }

void convert_known_state(torch::optim::OptimizerParamState& state, const at::Tensor& parameter,
                         const DistributeOptions& options) {
  using namespace torch::optim;
  const bool known =
      convert_state<SGDParamState>(state, parameter, options, TEGULA_STATE(momentum_buffer)) ||
      convert_state<AdamParamState>(state, parameter, options, TEGULA_STATE(exp_avg),
                                    TEGULA_STATE(exp_avg_sq), TEGULA_STATE(max_exp_avg_sq)) ||
      convert_state<AdamWParamState>(state, parameter, options, TEGULA_STATE(exp_avg),
                                     TEGULA_STATE(exp_avg_sq), TEGULA_STATE(max_exp_avg_sq)) ||
      convert_state<AdagradParamState>(state, parameter, options, TEGULA_STATE(sum)) ||
      convert_state<RMSpropParamState>(state, parameter, options, TEGULA_STATE(square_avg),
                                       TEGULA_STATE(momentum_buffer), TEGULA_STATE(grad_avg));
  if (!known) {
    throw UsageError("the state of this optimizer has no known form")
        .hint("distribute the module before the optimizer's first step");
  }
}

#undef TEGULA_STATE

}  // namespace

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PlacementsByName& place, const DistributeOptions& options) {
  Converter converter(mesh, options);
  const auto convert_all = [&](const auto& named) {
    for (const auto& item : named) {
      converter.convert(item.value(), place ? place(item.key(), item.value())
                                            : Placements(mesh.ndim(), Replicate()));
    }
  };
  convert_all(module.named_parameters());
  convert_all(module.named_buffers());
}

void distribute_optimizer_state(torch::optim::Optimizer& optimizer,
                                const DistributeOptions& options) {
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) {
        convert_known_state(*found->second, parameter, options);
      }
    }
  }
}

}  // namespace tegula
