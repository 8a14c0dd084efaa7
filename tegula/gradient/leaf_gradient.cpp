// The idea: a hook on the leaf, installed when the leaf first meets an op.
#include "tegula/gradient/leaf_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

#include "tegula/comm/comm_log.h"
#include "tegula/gradient/async_gradients.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/gradient/gradients.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {
namespace {

// What is differentiated again needs its gradient now.
GradientPolicy policy_for(const Payload& leaf) {
  if (at::GradMode::is_enabled()) return {};
  if (const GradientPolicy* guard = GradientPolicyGuard::current()) return *guard;
  if (!leaf.policies()) return {};
  const Policies& policies = leaf.policies()->policies;
  if (policies.gradient_of_module) return *policies.gradient_of_module;
  return policies.gradient_of_leaf.value_or(GradientPolicy());
}

// Whether the leaf has a gradient from earlier passes that was held, and is held no longer.
bool has_held_gradient(const at::Tensor& leaf, const GradientPolicy& policy) {
  if (at::GradMode::is_enabled()) return false;
  const at::Tensor& earlier = leaf.grad();
  const Payload* held = payload_in(earlier);
  if (!held || held->link() || !(held->spec().mesh() == payload_in(leaf)->spec().mesh())) {
    return false;
  }
  // gradients of chosen inputs are returned, not stored
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen != nullptr && !chosen->empty()) return false;
  for (std::size_t axis = 0; axis < held->spec().placements().size(); ++axis) {
    const bool is_owed = held->spec().placements()[axis] == Placement(Partial(ReduceOp::Sum));
    const std::string& name = held->spec().mesh().axes()[axis].name;
    if (is_owed && policy.over(name) != GradientReduction::Hold) return true;
  }
  return false;
}

class PlaceGradient final : public torch::autograd::FunctionPreHook {
 public:
  explicit PlaceGradient(c10::TensorImpl* leaf) : leaf_(leaf) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    torch::autograd::variable_list placed = grads;
    for (at::Tensor& grad : placed) {
      if (grad.defined()) grad = placed_as_leaf(grad);
    }
    return placed;
  }

 private:
  at::Tensor placed_as_leaf(const at::Tensor& grad) const {
    const at::Tensor leaf = at::Tensor(
        c10::intrusive_ptr<c10::TensorImpl,
                           c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(leaf_));
    const PayloadPtr payload = payload_of(leaf);
    if (!payload || grad.layout() != at::kStrided) return grad;
    const CommLabel label("gradient of a leaf", CommLabel::Reach::OverInnerLabels);
    const GradientPolicy policy = policy_for(*payload);
    // what was held adds up before it is paid
    const at::Tensor all =
        has_held_gradient(leaf, policy) ? at::add(grad, take_gradient(leaf)) : grad;
    at::Tensor placed = as_gradient_of(all, *payload, policy);
    const Payload* reduced = payload_in(placed);
    if (reduced && !reduced->tile_at_hand() && !reduced->link()) {
      finish_when_backward_ends(leaf, payload_of(placed));
    }
    return placed;
  }

  c10::TensorImpl* leaf_;  // owns this hook
};

bool is_watched(const at::Tensor& leaf) {
  for (const auto& hook : torch::autograd::impl::hooks(leaf)) {
    if (dynamic_cast<PlaceGradient*>(hook.get())) return true;
  }
  return false;
}

}  // namespace

void watch_leaf(const at::Tensor& outer) {
  if (!outer.requires_grad() || !outer.is_leaf() || is_watched(outer)) return;
  namespace autograd = torch::autograd::impl;
  // The list of the user's hooks goes first, even if it is empty yet: what they return is placed,
  // too, and libtorch, which drops all hooks when it makes the list, has no reason to do so later.
  if (autograd::hooks(outer).empty()) autograd::create_cpp_hook(outer);
  autograd::hooks(outer).push_back(std::make_unique<PlaceGradient>(outer.unsafeGetTensorImpl()));
}

}  // namespace tegula::inner
