// The idea: each move is the identity on the whole tensor, so its gradient is a move back. One
// autograd function serves all of them: what goes forward and what goes backward are closures.
#include "tegula/dispatch/differentiable.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/kernel.h"
#include "tegula/dispatch/leaf_gradient.h"
#include "tegula/dispatch/local_call.h"
#include "tegula/dispatch/tile_layout.h"
#include "tegula/dispatch/transfer.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {
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
    const at::Tensor& grad = grads.front();
    return {grad.defined() ? static_cast<Kept*>(kept.get())->backward(grad) : grad, at::Tensor(),
            at::Tensor()};
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

PayloadPtr moved_payload(const Payload& payload, const DTensorSpec& to, When when,
                         const std::optional<at::ScalarType>& wire) {
  const BelowAutograd below;
  const Origin origin(payload);
  const World& world = payload.world();
  if (!(origin.spec.mesh() == to.mesh())) {
    return c10::make_intrusive<Payload>(transfer(world, origin.tile, origin.spec, to, wire), to,
                                        world, Payload::Layout::Regular);
  }
  if (when == When::Later) {
    // a copy, so that a write to the tensor before the move is done cannot race with it
    return c10::make_intrusive<Payload>(
        redistribute_tile_later(world, origin.tile.clone(), origin.spec, to, wire), to, world);
  }
  return c10::make_intrusive<Payload>(redistribute_tile(world, origin.tile, origin.spec, to, wire),
                                      to, world, Payload::Layout::Regular);
}

}  // namespace

at::Tensor move_to(const at::Tensor& tensor, const DTensorSpec& wanted, When when,
                   const std::optional<at::ScalarType>& wire) {
  // what is moved lies densely in its new place
  const DTensorSpec to = wanted.with_meta(dense(wanted.meta()));
  claim_operators();
  watch_leaf(tensor);
  const PayloadPtr payload = payload_of(tensor);
  // the same placements, and nothing to do: a tensor that shares the tile
  const bool shares = !payload->link() && payload->spec() == to;
  if (!at::GradMode::is_enabled() || !tensor.requires_grad()) {
    at::Tensor result = outer_tensor(shares ? payload : moved_payload(*payload, to, when, wire));
    return shares ? sharing_version(std::move(result), tensor) : result;
  }
  at::Tensor result = Moved::apply(
      tensor, Move([payload, to, when, wire, shares](const at::Tensor&) {
        return outer_tensor(shares ? payload : moved_payload(*payload, to, when, wire));
      }),
      Move([payload, to, wire](const at::Tensor& grad) {
        const CommLabel label("gradient of redistribute");
        const at::Tensor placed = as_dtensor(grad, to.mesh(), payload->world());
        return move_to(placed, with_reductions_done(payload->spec()).with_meta(meta_of(placed)),
                       When::Now, wire);
      }));
  return shares ? sharing_version(std::move(result), tensor) : result;
}

at::Tensor wrap_tile(const at::Tensor& tile, const DTensorSpec& spec, const DTensorSpec& grad_spec,
                     const World& world) {
  claim_operators();
  at::Tensor result = Moved::apply(
      tile, Move([spec, world](const at::Tensor& local) {
        const BelowAutograd below;
        const auto at = spec.mesh().coordinate_of(world.rank());
        return at ? outer_tensor(in_tile_layout(local.detach(), spec, *at), spec, world)
                  : outer_tensor(no_tile(spec), spec, world);
      }),
      Move([grad_spec, world](const at::Tensor& grad) {
        const CommLabel label("gradient of from_local");
        const at::Tensor placed = as_dtensor(grad, grad_spec.mesh(), world);
        const DTensorSpec to = grad_spec.with_meta(meta_of(placed));
        return unwrap_tile(move_to(placed, to, When::Now, std::nullopt), to);
      }));
  return payload_of(result)->tile().is_alias_of(tile) ? sharing_version(std::move(result), tile)
                                                      : result;
}

at::Tensor unwrap_tile(const at::Tensor& tensor, const DTensorSpec& grad_spec) {
  watch_leaf(tensor);
  const PayloadPtr payload = payload_of(tensor);
  at::Tensor tile = Moved::apply(
      tensor, Move([payload](const at::Tensor&) {
        const BelowAutograd below;
        return payload->tile().detach();
      }),
      Move([grad_spec, payload](const at::Tensor& grad) {
        const DTensorSpec spec = grad_spec.with_meta(
            TensorMeta(grad_spec.shape(), grad_spec.meta().stride(), dtype_of(grad.scalar_type())));
        return wrap_tile(grad, spec, spec, payload->world());
      }));
  return payload->link() ? tile : sharing_version(std::move(tile), tensor);
}

at::Tensor as_gradient_of(const at::Tensor& grad, const Payload& payload) {
  if (const Payload* held = payload_in(grad)) {
    const bool is_there = held->spec() == payload.spec() && !held->link();
    if (is_there && !held->spec().is_partial() && is_dense(held->spec().meta())) return grad;
  }
  const at::Tensor placed = as_dtensor(grad, payload.spec().mesh(), payload.world());
  const PayloadPtr held = payload_of(placed);
  const DTensorSpec wanted = with_reductions_done(payload.spec()).with_meta(dense(meta_of(placed)));
  return held->spec() == wanted && !held->link() ? placed
                                                 : move_to(placed, wanted, When::Now, std::nullopt);
}

}  // namespace tegula
