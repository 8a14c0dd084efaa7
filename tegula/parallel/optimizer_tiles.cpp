#include "tegula/parallel/optimizer_tiles.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/gradient/gradients.h"
#include "tegula/payload/payload.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

[[noreturn]] void refuse(const at::Tensor& parameter, const char* sentence, const char* hint) {
  throw UsageError(sentence)
      .fact("parameter", is_dtensor(parameter) ? to_string(spec_of(parameter)) : "plain")
      .hint(hint);
}

at::Tensor placed_gradient(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.layout() != at::kStrided) {
    refuse(parameter, "this optimizer takes no sparse gradients",
           "make the embedding with sparse(false)");
  }
  if (is_dtensor(parameter) != is_dtensor(gradient)) {
    refuse(parameter, "a gradient is plain where its parameter is a DTensor, or the reverse",
           "distribute the gradient as the parameter");
  }
  if (!is_dtensor(parameter)) return gradient;
  const DTensorSpec spec = spec_of(parameter);
  const DTensorSpec now = spec_of(gradient);
  if (now.mesh() == spec.mesh() && now.placements() == spec.placements() &&
      now.shard_order() == spec.shard_order()) {
    return gradient;
  }
  return redistribute(gradient, mesh_of(parameter), spec.placements(),
                      {.order = spec.shard_order()});
}

torch::optim::AdamWParamState& state_of(const at::Tensor& parameter, bool has_greatest,
                                        OptimizerStates& states) {
  auto& held = states[parameter.unsafeGetTensorImpl()];
  if (!held) {
    auto made = std::make_unique<torch::optim::AdamWParamState>();
    made->exp_avg(at::zeros_like(parameter));
    made->exp_avg_sq(at::zeros_like(parameter));
    if (has_greatest) made->max_exp_avg_sq(at::zeros_like(parameter));
    held = std::move(made);
  }
  return static_cast<torch::optim::AdamWParamState&>(*held);
}

// The tiles that one call of the kernel takes, and those that are to be copied back: it takes
// memory as it comes, so what is not contiguous goes by a copy.
class KernelLists {
 public:
  std::vector<at::Tensor> parameters, gradients, averages, squares, greatest, steps;

  at::Tensor dense(const at::Tensor& tensor) {
    at::Tensor tile = tile_or_plain(tensor);
    if (tile.is_contiguous()) return tile;
    copies_.emplace_back(tile, tile.contiguous());
    return copies_.back().second;
  }
  void copy_back() const {
    for (const auto& [tile, copy] : copies_) tile.copy_(copy);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

}  // namespace

void note_write(const at::Tensor& tensor) {
  if (const Payload* payload = payload_in(tensor)) payload->note_write();
}

at::Tensor tile_or_plain(const at::Tensor& tensor) {
  return is_dtensor(tensor) ? to_local(tensor) : tensor;
}

std::vector<ParameterWithGradient> with_gradients(const std::vector<at::Tensor>& parameters) {
  reduce_gradients(parameters);
  std::vector<ParameterWithGradient> found;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    found.push_back({parameter, placed_gradient(parameter)});
  }
  return found;
}

void adamw_step(const std::vector<ParameterWithGradient>& parameters,
                const torch::optim::AdamWOptions& options, OptimizerStates& states) {
  KernelLists lists;
  for (const auto& [parameter, gradient] : parameters) {
    auto& state = state_of(parameter, options.amsgrad(), states);
    state.step(state.step() + 1);
    note_write(parameter);
    if (tile_or_plain(parameter).numel() == 0) continue;
    lists.parameters.push_back(lists.dense(parameter));
    lists.gradients.push_back(tile_or_plain(gradient).contiguous());
    lists.averages.push_back(lists.dense(state.exp_avg()));
    lists.squares.push_back(lists.dense(state.exp_avg_sq()));
    if (options.amsgrad()) lists.greatest.push_back(lists.dense(state.max_exp_avg_sq()));
    lists.steps.push_back(at::full({}, static_cast<double>(state.step()), at::kFloat));
  }
  if (lists.parameters.empty()) return;
  at::_fused_adamw_(lists.parameters, lists.gradients, lists.averages, lists.squares,
                    lists.greatest, lists.steps, options.lr(), std::get<0>(options.betas()),
                    std::get<1>(options.betas()), options.weight_decay(), options.eps(),
                    options.amsgrad(), /*maximize=*/false);
  lists.copy_back();
}

}  // namespace tegula::inner
