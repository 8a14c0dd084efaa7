// The idea: a hook on the leaf, installed when the leaf first meets an op.
#include "tegula/gradient/leaf_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
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
    at::Tensor placed = as_gradient_of(grad, *payload, policy_for(*payload));
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
