// Optimizer steps over lists of parameters: each member by itself, pointwise.
#include "tegula/ops/families.h"

namespace tegula::families {

void add_optimizers(RuleTable& rules) {
  // parameter, gradient, up to three moments, and tensors without dims: steps, rate, scale, found
  rules.add_all("_fused_adam _fused_adamw _fused_sgd _fused_adagrad",
                "~..., ~..., ~..., ~..., ~..., ~..., ~..., ~..., ~... ->");
}

}  // namespace tegula::families
