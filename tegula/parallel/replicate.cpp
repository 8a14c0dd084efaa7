// The idea: what is replicated needs no care in forward, and gradients owe a sum wherever samples
// are cut; so all there is to do is to place parameters and to say when the sum is paid.
#include "tegula/parallel/replicate.h"

#include <ATen/ATen.h>

#include <memory>

#include "tegula/base/error.h"
#include "tegula/parallel/alike.h"
#include "tegula/parallel/members.h"
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

void check(const ReplicateOptions& options) {
  if (options.bucket_bytes < 0) {
    throw UsageError("a bucket of gradients cannot have a negative number of bytes")
        .fact("bucket_bytes", std::to_string(options.bucket_bytes))
        .hint("0 means one call per gradient");
  }
  if (options.hook && options.reduction != GradientReduction::Async) {
    throw UsageError("a hook on buckets needs gradients that are reduced while backward runs")
        .fact("reduction", to_string(GradientPolicy(options.reduction)))
        .hint("leave the reduction async; no_sync(mesh) holds gradients over micro-batches");
  }
}

}  // namespace

void inner::replicate_members(const std::vector<StandingMember>& members, const DeviceMesh& mesh,
                              const ReplicateOptions& options) {
  check(options);
  check_alike(members, mesh.root());
  parallelize_members(members, mesh, {}, kSameOnAllRanks);
  const std::string& axis = mesh.axes()[0].name;
  const auto buckets = std::make_shared<const BucketOptions>(
      BucketOptions{.bytes = options.bucket_bytes, .hook = options.hook});
  for (const StandingMember& member : members) {
    if (member.kind == MemberKind::Buffer) continue;
    set_gradient_policy(member.tensor, with_axis(member.tensor, axis, options.reduction),
                        PolicyOf::Module);
    Policies policies = policies_of(member.tensor);
    policies.gradient_wire = options.wire;
    policies.gradient_buckets = buckets;
    set_policies(member.tensor, policies);
  }
}

void replicate(torch::nn::Module& module, const DeviceMesh& mesh, const ReplicateOptions& options) {
  replicate_members(members_in(module), mesh, options);
}

GradientPolicy no_sync(const DeviceMesh& mesh) {
  GradientPolicy::OverAxes axes;
  for (const MeshAxis& axis : mesh.axes()) axes[axis.name] = GradientReduction::Hold;
  return GradientPolicy(axes);
}

}  // namespace tegula
