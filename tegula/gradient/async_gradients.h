// Gradients whose reductions are under way in a backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/payload/payload.h"

namespace tegula::inner {

// Inside a backward pass, for a gradient that is about to be stored in the leaf: its reduction is
// waited for when the pass ends. A gradient that the leaf has already is set aside until then, and
// added. If a reduction fails, or the pass does, every leaf has the gradient that it had before.
void finish_when_backward_ends(const at::Tensor& leaf, const PayloadPtr& reduced);

// Inside a backward pass: the leaf's gradient, taken away. If the pass fails, it is there again.
at::Tensor take_gradient(const at::Tensor& leaf);

}  // namespace tegula::inner
