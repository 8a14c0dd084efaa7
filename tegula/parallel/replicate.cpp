// The idea: what is replicated needs no care in forward, and gradients owe a sum wherever samples
// are cut; so all there is to do is to place parameters and to say when the sum is paid.
#include "tegula/parallel/replicate.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "tegula/parallel/alike.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/payload/payload.h"

namespace tegula {

using namespace inner;

namespace {

// The policy that a leaf has, with another word for one axis.
GradientPolicy with_axis(const at::Tensor& leaf, const std::string& axis,
                         GradientReduction reduction) {
  const PoliciesPtr& policies = payload_in(leaf)->policies();
  const GradientPolicy now = policies && policies->policies.gradient_of_module
                                 ? *policies->policies.gradient_of_module
                                 : GradientPolicy();
  GradientPolicy::OverAxes axes = now.axes();
  axes[axis] = reduction;
  return {axes, now.otherwise()};
}

}  // namespace

void replicate(torch::nn::Module& module, const DeviceMesh& mesh, const ReplicateOptions& options) {
  check_alike(named_tensors(module), mesh.root());
  parallelize_module(module, mesh, {}, kSameOnAllRanks);
  for (const at::Tensor& parameter : module.parameters()) {
    const std::string& axis = mesh.axes()[0].name;
    set_gradient_policy(parameter, with_axis(parameter, axis, options.reduction), PolicyOf::Module);
  }
}

GradientPolicy no_sync(const DeviceMesh& mesh) {
  GradientPolicy::OverAxes axes;
  for (const MeshAxis& axis : mesh.axes()) axes[axis.name] = GradientReduction::Hold;
  return GradientPolicy(axes);
}

}  // namespace tegula
