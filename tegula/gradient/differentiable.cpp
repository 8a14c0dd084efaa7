// The idea: each move is the identity on the whole tensor, so its gradient is a move back. One
// autograd function serves all of them: what goes forward and what goes backward are closures.
#include "tegula/gradient/differentiable.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/gradient/leaf_gradient.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/redistribute/transfer.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

using Move = std::function<at::Tensor(const at::Tensor&)>;

struct Kept : torch::CustomClassHolder {
  explicit Kept(Move move) : backward(std::move(move)) {}
  Move backward;
};

struct Moved : torch::autograd::Function<Moved> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const Move& move, const Move& back) {
    context->saved_data["back"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(back));
    return move(input);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto kept = context->saved_data["back"].toCapsule();
    at::Tensor& grad = grads.front();
    if (grad.defined()) {
      grad = with_host_errors([&] { return static_cast<Kept*>(kept.get())->backward(grad); });
    }
    return {grad, at::Tensor(), at::Tensor()};
  }
};

bool is_dense(const TensorMeta& meta) { return meta == dense(meta); }

at::Tensor as_dtensor(const at::Tensor& grad, const DeviceMesh& mesh, const World& world) {
  if (payload_of(grad)) return grad;
  const DTensorSpec spec = replicated_spec(mesh, meta_of(grad));
  return wrap_tile(grad, spec, spec, world);
}

// Where a tensor's data is, for moving it.
struct Origin {
  explicit Origin(const Payload& payload)
      : spec(payload.link() ? replicated_spec(payload.spec()) : payload.spec()),
        tile(payload.coordinate() ? payload.resolved_tile() : no_tile(payload.spec())) {}
  DTensorSpec spec;
  at::Tensor tile;
};

// A write to one of two tensors that share a tile is a write to the other, and autograd should
// know.
at::Tensor sharing_version(at::Tensor alias, const at::Tensor& of) {
  if (!alias.is_inference() && !of.is_inference()) {
    alias.unsafeGetTensorImpl()->set_version_counter(of.unsafeGetTensorImpl()->version_counter());
  }
  return alias;
}

PayloadPtr moved_payload(const Payload& payload, const DTensorSpec& to, CallMode mode,
                         const RouteOptions& options) {
  const BelowAutograd below;
  const Origin origin(payload);
  const World& world = payload.world();
  if (!(origin.spec.mesh() == to.mesh())) {
    return c10::make_intrusive<Payload>(transfer(world, origin.tile, origin.spec, to, options), to,
                                        world, Payload::Layout::Regular);
  }
  if (mode == CallMode::Async) {
    // a copy, so that a write to the tensor before the move is done cannot race with it
    return c10::make_intrusive<Payload>(
        redistribute_tile_async(world, origin.tile.clone(), origin.spec, to, options), to, world);
  }
  return c10::make_intrusive<Payload>(
      redistribute_tile(world, origin.tile, origin.spec, to, options), to, world,
      Payload::Layout::Regular);
}

// `done`, but still owing the sums that a gradient owes over axes whose policy is one of these.
DTensorSpec with_sums_owed(const DTensorSpec& done, const DTensorSpec& gradient,
                           const GradientPolicy& policy,
                           std::initializer_list<GradientReduction> left) {
  Placements placements = done.placements();
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& owed = gradient.placements()[axis];
    const bool is_left = std::find(left.begin(), left.end(),
                                   policy.over(done.mesh().axes()[axis].name)) != left.end();
    if (is_left && owed == Placement(Partial(ReduceOp::Sum))) placements[axis] = owed;
  }
  return with_order_kept(done, placements);
}

}  // namespace

at::Tensor move_to(const at::Tensor& tensor, const DTensorSpec& wanted, CallMode mode,
                   const RouteOptions& options) {
  // what is moved lies densely in its new place
  const DTensorSpec to = densely(wanted);
  watch_leaf(tensor);
  const PayloadPtr payload = payload_of(tensor);
  // the same placements, and nothing to do: a tensor that shares the tile
  const bool shares = !payload->link() && payload->spec() == to;
  if (!at::GradMode::is_enabled() || !tensor.requires_grad()) {
    at::Tensor result = outer_tensor(shares ? payload : moved_payload(*payload, to, mode, options));
    return shares ? sharing_version(std::move(result), tensor) : result;
  }
  at::Tensor result = Moved::apply(
      tensor, Move([payload, to, mode, options, shares](const at::Tensor&) {
        return outer_tensor(shares ? payload : moved_payload(*payload, to, mode, options));
      }),
      Move([payload, to, wire = options.wire](const at::Tensor& grad) {
        const CommLabel label("gradient of redistribute");
        const at::Tensor placed = as_dtensor(grad, to.mesh(), payload->world());
        return move_to(placed, with_reductions_done(payload->spec()).with_meta(meta_of(placed)),
                       CallMode::Sync, {wire});
      }));
  return shares ? sharing_version(std::move(result), tensor) : result;
}

at::Tensor wrap_tile(const at::Tensor& tile, const DTensorSpec& spec, const DTensorSpec& grad_spec,
                     const World& world, Payload::Layout layout) {
  at::Tensor result =
      Moved::apply(tile, Move([spec, world, layout](const at::Tensor& local) {
                     const BelowAutograd below;
                     const auto at = spec.mesh().coordinate_of(world.rank());
                     if (!at) return outer_tensor(no_tile(spec), spec, world);
                     if (layout == Payload::Layout::Other) {
                       return outer_tensor(local.detach(), spec, world, layout);
                     }
                     return outer_tensor(in_tile_layout(local.detach(), spec, *at), spec, world);
                   }),
                   Move([grad_spec, world](const at::Tensor& grad) {
                     const CommLabel label("gradient of from_local");
                     const at::Tensor placed = as_dtensor(grad, grad_spec.mesh(), world);
                     const DTensorSpec to = grad_spec.with_meta(meta_of(placed));
                     return unwrap_tile(move_to(placed, to, CallMode::Sync, {}), to);
                   }));
  const Payload& payload = *payload_in(result);
  if (!payload.tile().is_alias_of(tile)) return result;
  payload.note_exposed();
  return sharing_version(std::move(result), tile);
}

at::Tensor unwrap_tile(const at::Tensor& tensor, const DTensorSpec& grad_spec) {
  watch_leaf(tensor);
  const PayloadPtr payload = payload_of(tensor);
  at::Tensor tile = Moved::apply(
      tensor, Move([payload](const at::Tensor&) {
        const BelowAutograd below;
        payload->note_exposed();
        return payload->tile().detach();
      }),
      Move([grad_spec, payload](const at::Tensor& grad) {
        const DTensorSpec spec = grad_spec.with_meta(
            TensorMeta(grad_spec.shape(), grad_spec.meta().stride(), dtype_of(grad.scalar_type())));
        return wrap_tile(grad, spec, spec, payload->world());
      }));
  return payload->link() ? tile : sharing_version(std::move(tile), tensor);
}

at::Tensor apply_linear(const at::Tensor& tensor, const LinearFunction& function,
                        const LinearFunction& transpose) {
  return Moved::apply(tensor, Move([function](const at::Tensor& input) {
                        const BelowAutograd below;
                        return function(input);
                      }),
                      Move([function, transpose](const at::Tensor& grad) {
                        return apply_linear(grad, transpose, function);
                      }));
}

DTensorSpec gradient_spec(const Payload& payload, const TensorMeta& gradient) {
  const DTensorSpec spec = with_reductions_done(payload.spec()).with_meta(dense(gradient));
  const Gathering* gathering = payload.gathering();
  return gathering && gathering->whole_gradient ? with_axes_whole(spec, gathering->over) : spec;
}

at::Tensor as_gradient_of(const at::Tensor& grad, const Payload& payload,
                          const GradientPolicy& policy, const StartReductions& start) {
  const Payload* there = payload_in(grad);
  if (there && there->spec() == payload.spec() && !there->link() && !there->spec().is_partial() &&
      is_dense(there->spec().meta()) && !payload.gathering()) {
    return grad;
  }
  const at::Tensor placed = as_dtensor(grad, payload.spec().mesh(), payload.world());
  const PayloadPtr held = payload_of(placed);
  const DTensorSpec done = gradient_spec(payload, meta_of(placed));
  if (held->spec() == done && !held->link()) return placed;
  const RouteOptions options{.wire = payload.policies() ? payload.policies()->policies.gradient_wire
                                                        : std::nullopt};
  if (held->link() || !(held->spec().mesh() == done.mesh())) {
    return move_to(placed, done, CallMode::Sync, options);
  }
  const auto owing = [&](GradientReduction first, GradientReduction second) {
    return with_sums_owed(done, held->spec(), policy, {first, second});
  };
  const DTensorSpec begun = owing(GradientReduction::Async, GradientReduction::Hold);
  const DTensorSpec wanted = owing(GradientReduction::Hold, GradientReduction::Hold);
  const at::Tensor now =
      held->spec() == begun ? placed : move_to(placed, begun, CallMode::Sync, options);
  return begun == wanted ? now : start(now, wanted, options);
}

}  // namespace tegula::inner
