// The gradient of a leaf arrives placed as the leaf is.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "tegula/dispatch/op_facts.h"

namespace tegula {

// If the tensor is a leaf that requires grad: from now on gradients that reach it are brought to
// its placements (owed reductions done) before they are stored or returned, plain ones counting as
// replicated. Does nothing the second time. Cheap.
void watch_leaf(const at::Tensor& outer);
inline void watch_if_leaf(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.requires_grad()) watch_leaf(tensor);
}
// ... of all leaves among the arguments on top of the stack.
void watch_leaves(const OpFacts& facts, const torch::jit::Stack& stack);

}  // namespace tegula
