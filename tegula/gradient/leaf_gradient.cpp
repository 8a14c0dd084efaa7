// The idea: a hook on the leaf, installed when the leaf first meets an op.
#include "tegula/gradient/leaf_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <optional>

#include "tegula/comm/comm_log.h"
#include "tegula/gradient/async_gradients.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/gradient/gradients.h"
#include "tegula/gradient/owed_all_reduce.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/local_call.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

// What is differentiated again needs its gradient now.
GradientPolicy policy_for(const Payload& leaf) {
  if (at::GradMode::is_enabled()) return {};
  if (const GradientPolicy* guard = GradientPolicyGuard::current()) return *guard;
  if (!leaf.policies()) return {};
  const Policies& policies = leaf.policies()->policies;
  if (policies.gradient_of_module) return *policies.gradient_of_module;
  return policies.gradient_of_leaf.value_or(GradientPolicy());
}

// Whether the leaf has a gradient from earlier passes that was held, and is held no longer.
bool has_held_gradient(const at::Tensor& leaf, const GradientPolicy& policy) {
  if (at::GradMode::is_enabled()) return false;
  const at::Tensor& earlier = leaf.grad();
  const Payload* held = payload_in(earlier);
  if (!held || held->link() || !(held->spec().mesh() == payload_in(leaf)->spec().mesh())) {
    return false;
  }
  // gradients of chosen inputs are returned, not stored
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen != nullptr && !chosen->empty()) return false;
  for (std::size_t axis = 0; axis < held->spec().placements().size(); ++axis) {
    const bool is_owed = held->spec().placements()[axis] == Placement(Partial(ReduceOp::Sum));
    const std::string& name = held->spec().mesh().axes()[axis].name;
    if (is_owed && policy.over(name) != GradientReduction::Hold) return true;
  }
  return false;
}

enum class Owner { We, Others };

// Others, if anybody else has its tile or a view of that, and could write to it or read it.
Owner owner_of_tile(const Payload& payload) {
  const at::Tensor* tile = payload.tile_at_hand();
  const bool is_ours = tile && tile->use_count() == 1 && tile->storage().use_count() == 1;
  return is_ours ? Owner::We : Owner::Others;
}

// Others, if anybody else has the tensor or its tile.
Owner owner_of(const at::Tensor& grad) {
  const PayloadPtr payload = payload_of(grad);
  if (!payload || grad.use_count() != 1 || payload.use_count() != 2) return Owner::Others;
  return owner_of_tile(*payload);
}

// What a gradient that owes one all-reduce is, once it is reduced with others; none if the leaf has
// no word for that, or the gradient goes another way.
std::optional<at::Tensor> in_bucket(const at::Tensor& leaf, const at::Tensor& owing,
                                    const DTensorSpec& wanted, const RouteOptions& options,
                                    Owner owner) {
  const PoliciesPtr& policies = payload_in(leaf)->policies();
  const BucketOptionsPtr buckets = policies ? policies->policies.gradient_buckets : nullptr;
  if (!buckets) return std::nullopt;
  const DTensorSpec to = densely(wanted);
  const Payload& held = *payload_in(owing);
  const std::optional<OwedAllReduce> owed = owed_all_reduce(held, to, options);
  if (!owed) return std::nullopt;
  const BelowAutograd below;
  const at::Tensor tile = held.resolved_tile();
  const at::Tensor sent = options.wire ? tile.to(*options.wire) : tile;
  const bool is_ours = owner == Owner::We || !sent.is_alias_of(held.tile());
  const at::Tensor ours = is_ours ? sent.contiguous() : sent.clone(at::MemoryFormat::Contiguous);
  return outer_tensor(reduce_in_bucket({leaf, ours, to, *owed}, buckets));
}

class PlaceGradient final : public torch::autograd::FunctionPreHook {
 public:
  explicit PlaceGradient(c10::TensorImpl* leaf) : leaf_(leaf) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    torch::autograd::variable_list placed(grads.size());
    for (std::size_t k = 0; k < grads.size(); ++k) {
      if (!grads[k].defined()) continue;
      placed[k] = with_host_errors([&] { return placed_as_leaf(grads[k]); });
    }
    return placed;
  }

 private:
  at::Tensor placed_as_leaf(const at::Tensor& grad) const {
    const at::Tensor leaf = at::Tensor(
        c10::intrusive_ptr<c10::TensorImpl,
                           c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(leaf_));
    const PayloadPtr payload = payload_of(leaf);
    if (!payload || grad.layout() != at::kStrided) return grad;
    const CommLabel label("gradient of a leaf", CommLabel::Reach::OverInnerLabels);
    const GradientPolicy policy = policy_for(*payload);
    const Owner owner = owner_of(grad);
    // what was held adds up before it is paid
    const at::Tensor all =
        has_held_gradient(leaf, policy) ? at::add(grad, take_gradient(leaf)) : grad;
    bool is_in_bucket = false;
    const auto start = [&](const at::Tensor& owing, const DTensorSpec& wanted,
                           const RouteOptions& options) {
      // a reduced form of the gradient may be remembered by it
      const Owner of_tile = owing.is_same(grad) ? owner : owner_of_tile(*payload_in(owing));
      const auto bucketed = in_bucket(leaf, owing, wanted, options, of_tile);
      is_in_bucket = bucketed.has_value();
      return bucketed ? *bucketed : move_to(owing, wanted, CallMode::Async, options);
    };
    at::Tensor placed = as_gradient_of(all, *payload, policy, start);
    const Payload* reduced = payload_in(placed);
    if (reduced && !reduced->tile_at_hand() && !reduced->link() && !is_in_bucket) {
      finish_when_backward_ends(leaf, payload_of(placed));
    }
    return placed;
  }

  c10::TensorImpl* leaf_;  // owns this hook
};

bool is_watched(const at::Tensor& leaf) {
  for (const auto& hook : torch::autograd::impl::hooks(leaf)) {
    if (dynamic_cast<PlaceGradient*>(hook.get())) return true;
  }
  return false;
}

}  // namespace

void watch_leaf(const at::Tensor& outer) {
  if (!outer.requires_grad() || !outer.is_leaf() || is_watched(outer)) return;
  namespace autograd = torch::autograd::impl;
  // The list of the user's hooks goes first, even if it is empty yet: what they return is placed,
  // too, and libtorch, which drops all hooks when it makes the list, has no reason to do so later.
  if (autograd::hooks(outer).empty()) autograd::create_cpp_hook(outer);
  autograd::hooks(outer).push_back(std::make_unique<PlaceGradient>(outer.unsafeGetTensorImpl()));
}

}  // namespace tegula::inner
