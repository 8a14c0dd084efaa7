// Gradients of pointwise ops: linear in the gradient that comes in.
#include "tegula/ops/families.h"

namespace tegula::inner::families {

void add_pointwise_backward(RuleTable& rules) {
  rules.add_all(
      "threshold_backward gelu_backward silu_backward mish_backward tanh_backward "
      "sigmoid_backward softplus_backward hardtanh_backward hardswish_backward "
      "hardsigmoid_backward hardshrink_backward softshrink_backward elu_backward "
      "leaky_relu_backward logit_backward native_dropout_backward",
      "... * ~... -> ...");
  rules.add_all("log_sigmoid_backward rrelu_with_noise_backward", "... * ~... * ~... -> ...");
  rules.add("_prelu_kernel_backward", "... * ~... * ~... -> ..., ...");
}

}  // namespace tegula::inner::families
