#include "tegula/dispatch/leaf_gradient.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/differentiable.h"
#include "tegula/dispatch/payload.h"

namespace tegula {
namespace {

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
    return as_gradient_of(grad, *payload);
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

void watch_leaves(const OpFacts& facts, const torch::jit::Stack& stack) {
  const auto watch = [](const c10::IValue& value) {
    if (!value.isTensor()) return;
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.requires_grad() &&
        tensor.key_set().has(c10::DispatchKey::PrivateUse3)) {
      watch_leaf(tensor);
    }
  };
  const std::size_t count = facts.kinds.size();
  for (std::size_t index = 0; index < count; ++index) {
    const c10::IValue& value = stack[stack.size() - count + index];
    if (facts.kinds[index] == ArgumentKind::Tensor) watch(value);
    if (facts.kinds[index] != ArgumentKind::TensorList || !value.isList()) continue;
    for (const c10::IValue& member : value.toListRef()) watch(member);
  }
}

void watch_leaf(const at::Tensor& outer) {
  if (!outer.requires_grad() || !outer.is_leaf() || is_watched(outer)) return;
  namespace autograd = torch::autograd::impl;
  // The list of the user's hooks goes first, even if it is empty yet: what they return is placed,
  // too, and libtorch, which drops all hooks when it makes the list, has no reason to do so later.
  if (autograd::hooks(outer).empty()) autograd::create_cpp_hook(outer);
  autograd::hooks(outer).push_back(std::make_unique<PlaceGradient>(outer.unsafeGetTensorImpl()));
}

}  // namespace tegula
