// Optimizer steps over lists of parameters: each member by itself, pointwise.
#include "tegula/ops/families.h"

namespace tegula::inner::families {

void add_optimizers(RuleTable& rules) {
  // parameter, gradient, up to three moments, and tensors without dims: steps, rate, scale, found
  rules.add_all("_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_",
                "~..., ~..., ~..., ~..., ~..., ~..., ~..., ~..., ~... ->");
}

}  // namespace tegula::inner::families
