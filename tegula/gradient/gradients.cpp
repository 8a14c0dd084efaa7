// The idea: gradients whose plan is one all-reduce are reduced together, by group and kind of
// reduction; any other is moved by itself.
#include "tegula/gradient/gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/gradient/owed_all_reduce.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {

using namespace inner;

namespace {

thread_local const GradientPolicy* innermost_policy = nullptr;

// Gradients that one call reduces.
struct Batch {
  Group group;
  ReduceOp op;
  std::vector<at::Tensor> leaves;
  std::vector<DTensorSpec> specs;  // of what is reduced
  std::vector<at::Tensor> tiles;
};

class Batches {
 public:
  // False if the gradient has to be moved by itself.
  bool take(const at::Tensor& leaf, const Payload& grad, const DTensorSpec& wanted) {
    if (policies_of(leaf).gradient_wire) return false;
    const std::optional<OwedAllReduce> owed = owed_all_reduce(grad, wanted, {});
    if (!owed) return false;
    Batch& batch = batch_for(owed->group, owed->op);
    batch.leaves.push_back(leaf);
    batch.specs.push_back(wanted);
    batch.tiles.push_back(grad.resolved_tile());
    return true;
  }

  void run() {
    for (Batch& batch : batches_) {
      const std::vector<at::Tensor> reduced =
          batch.group.all_reduce_coalesced(batch.tiles, batch.op);
      for (std::size_t k = 0; k < reduced.size(); ++k) {
        const World world = payload_in(batch.leaves[k])->world();
        const Coordinate at = *batch.specs[k].mesh().coordinate_of(world.rank());
        batch.leaves[k].mutable_grad() =
            outer_tensor(in_tile_layout(reduced[k], batch.specs[k], at), batch.specs[k], world);
      }
    }
  }

 private:
  // In the order in which leaves ask for them, the same on all ranks.
  Batch& batch_for(const Group& group, ReduceOp op) {
    for (Batch& batch : batches_) {
      if (batch.group.ranks() == group.ranks() && batch.op == op) return batch;
    }
    return batches_.emplace_back(Batch{group, op, {}, {}, {}});
  }

  std::vector<Batch> batches_;
};

}  // namespace

void set_gradient_policy(const at::Tensor& leaf, const GradientPolicy& policy, PolicyOf said_for) {
  const PayloadPtr payload = payload_of(leaf);
  if (!payload) {
    throw UsageError("a plain tensor has no gradient policy")
        .hint("distribute it first; its gradients are each rank's own");
  }
  const std::vector<MeshAxis>& axes = payload->spec().mesh().axes();
  for (const auto& [axis, reduction] : policy.axes()) {
    const auto is_it = [&name = axis](const MeshAxis& one) { return one.name == name; };
    if (std::any_of(axes.begin(), axes.end(), is_it)) continue;
    throw UsageError("a gradient policy names an axis that the tensor's mesh does not have")
        .fact("axis", axis)
        .fact("policy", to_string(policy))
        .fact("tensor", to_string(payload->spec()))
        .hint("name an axis of the mesh");
  }
  Policies policies = policies_of(leaf);
  switch (said_for) {
    case PolicyOf::Leaf:
      policies.gradient_of_leaf = policy;
      break;
    case PolicyOf::Module:
      policies.gradient_of_module = policy;
      break;
  }
  set_policies(leaf, policies);
}

GradientPolicyGuard::GradientPolicyGuard(GradientPolicy policy)
    : policy_(std::move(policy)), outer_(innermost_policy) {
  innermost_policy = &policy_;
}

GradientPolicyGuard::~GradientPolicyGuard() { innermost_policy = outer_; }

const GradientPolicy* GradientPolicyGuard::current() { return innermost_policy; }

void reduce_gradients(const std::vector<at::Tensor>& leaves) {
  const at::NoGradGuard no_grad;
  const BelowAutograd below;
  const CommLabel label("reduce_gradients", CommLabel::Reach::OverInnerLabels);
  Batches batches;
  std::vector<std::pair<at::Tensor, DTensorSpec>> others;
  for (const at::Tensor& leaf : leaves) {
    const Payload* payload = leaf.defined() ? payload_in(leaf) : nullptr;
    const at::Tensor grad = payload ? leaf.grad() : at::Tensor();
    const Payload* held = payload_in(grad);
    if (!held || !(held->spec().mesh() == payload->spec().mesh())) continue;
    const DTensorSpec wanted = gradient_spec(*payload, meta_of(grad));
    if (held->spec() == wanted) continue;
    if (!batches.take(leaf, *held, wanted)) others.emplace_back(leaf, wanted);
  }
  batches.run();
  for (const auto& [leaf, wanted] : others) {
    leaf.mutable_grad() =
        move_to(leaf.grad(), wanted, CallMode::Sync, {.wire = policies_of(leaf).gradient_wire});
  }
}

}  // namespace tegula
