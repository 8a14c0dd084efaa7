// The gradient of a leaf arrives placed as the leaf is.
#pragma once

#include <ATen/core/Tensor.h>

namespace tegula::inner {

// If the tensor is a leaf that requires grad: from now on gradients that reach it are brought to
// its placements (owed reductions done) before they are stored or returned, plain ones counting as
// replicated. Does nothing the second time. Cheap.
void watch_leaf(const at::Tensor& outer);
inline void watch_if_leaf(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.requires_grad()) watch_leaf(tensor);
}

}  // namespace tegula::inner
