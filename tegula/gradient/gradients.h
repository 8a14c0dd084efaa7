// What becomes of the reductions that gradients owe: said per leaf, per module (tensor/module.h),
// or by a guard. A guard outranks what was said for the module, that what was said for the leaf;
// else the reduction is done before the gradient is stored. With create_graph it always is.
//
//   set_gradient_policy(weight, {{{"dp", GradientReduction::Hold}}});   // adds up over
//   micro-batches
//   ...
//   reduce_gradients(model->parameters());                              // pays once
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tegula/payload/gradient_policy.h"

namespace tegula {

enum class PolicyOf { Leaf, Module };

// For the gradients of this leaf, a DTensor; views of it carry it on. All ranks of its mesh set the
// same. UsageError for a plain tensor, or for an axis that its mesh does not have.
void set_gradient_policy(const at::Tensor& leaf, const GradientPolicy& policy,
                         PolicyOf said_for = PolicyOf::Leaf);

// While it stands, backward passes of this thread follow this policy, whatever was said for leaves
// and modules. Axes that a leaf's mesh does not have do not matter.
class GradientPolicyGuard {
 public:
  explicit GradientPolicyGuard(GradientPolicy policy);
  ~GradientPolicyGuard();
  GradientPolicyGuard(const GradientPolicyGuard&) = delete;
  GradientPolicyGuard& operator=(const GradientPolicyGuard&) = delete;

  // The innermost one that stands on this thread; null if none does.
  static const GradientPolicy* current();

 private:
  GradientPolicy policy_;
  const GradientPolicy* outer_;
};

// Brings the gradients of these leaves to where the leaves are; those that are there already, plain
// or undefined, stay. Reductions that are alike go in one call per group. All ranks of the leaves'
// meshes call it with the same leaves.
void reduce_gradients(const std::vector<at::Tensor>& leaves);

}  // namespace tegula
