#include "tegula/tensor/dtensor.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/recovery.h"
#include "tegula/dispatch/paranoia.h"
#include "tegula/families/families.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/payload/local_call.h"
#include "tegula/payload/payload.h"
#include "tegula/redistribute/transfer.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {

using namespace inner;

namespace {

PayloadPtr payload_or_throw(const at::Tensor& tensor, const char* function) {
  if (PayloadPtr payload = payload_of(tensor)) return payload;
  throw UsageError(std::string(function) + " needs a DTensor")
      .fact("tensor", described(tensor))
      .hint("make one with distribute_tensor or from_local");
}

DTensorSpec spec_for(const DeviceMesh& mesh, const Placements& placements, const ShardOrder& order,
                     const TensorMeta& meta) {
  return order.empty() ? DTensorSpec(mesh, placements, meta)
                       : DTensorSpec(mesh, placements, order, meta);
}

DTensorSpec gradient_spec_for(const DTensorSpec& spec,
                              const std::optional<Placements>& grad_placements) {
  return grad_placements ? spec.with_placements(*grad_placements) : with_reductions_done(spec);
}

void check_can_be_distributed(const at::Tensor& tensor, const DeviceMesh& mesh) {
  if (!tensor.defined() || payload_of(tensor) || tensor.layout() != at::kStrided ||
      (tensor.device().type() != device_of(mesh).type() && !tensor.is_meta())) {
    throw UsageError("distribute_tensor needs a plain strided tensor on the mesh's device")
        .fact("device", mesh.device_type())
        .fact("tensor", described(tensor))
        .hint(
            "redistribute changes the placements of a DTensor; sparse tensors have no distributed "
            "form");
  }
  if (!tensor.is_leaf()) {
    throw UsageError("distribute_tensor would cut the tensor off from its history")
        .fact("tensor", described(tensor))
        .hint("use from_local, which is differentiable, or detach() it first");
  }
}

// For the caller to fill.
at::Tensor tile_without_values(const DTensorSpec& spec, const World& world) {
  const std::optional<Coordinate> at = spec.mesh().coordinate_of(world.rank());
  return at ? new_tile(spec, *at) : no_tile(spec);
}

// The rank at a place of this rank's fiber; ranks outside of the mesh look at the first fiber.
std::int64_t rank_at_place(const DeviceMesh& mesh, std::int64_t place, const World& world) {
  if (place < 0 || place >= mesh.size()) {
    throw UsageError("the mesh has no place " + std::to_string(place) +
                     " whose data could be distributed")
        .fact("mesh", to_string(mesh))
        .hint("source is a place in the mesh, from 0 to " + std::to_string(mesh.size() - 1));
  }
  return mesh.rank_at(mesh.coordinate_at(place), mesh.fiber_of(world.rank()).value_or(0));
}

std::size_t data_axis_of(const DeviceMesh& mesh, std::string_view named) {
  if (!named.empty()) return mesh.axis_index(named);
  if (mesh.ndim() == 1) return 0;
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axes()[axis].name == "dp") return axis;
  }
  throw UsageError("shard_batch does not know which axis is the data axis")
      .fact("mesh", to_string(mesh))
      .hint("name it: shard_batch(x, mesh, " + in_quotes(mesh.axes()[0].name) + ")");
}

}  // namespace

bool is_dtensor(const at::Tensor& tensor) { return static_cast<bool>(payload_of(tensor)); }

DTensorSpec spec_of(const at::Tensor& tensor) {
  return payload_or_throw(tensor, "spec_of")->spec();
}

Placements placements_of(const at::Tensor& tensor) {
  return payload_or_throw(tensor, "placements_of")->spec().placements();
}

DeviceMesh mesh_of(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_or_throw(tensor, "mesh_of");
  return payload->world().mesh(payload->spec().mesh());
}

World world_of(const at::Tensor& tensor) { return payload_or_throw(tensor, "world_of")->world(); }

at::Tensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                             const Placements& placements, const DistributeOptions& options) {
  claim_operators();
  check_can_be_distributed(tensor, mesh);
  const World world = World::of(mesh);
  const DTensorSpec spec = spec_for(mesh, placements, options.order, dense(meta_of(tensor)));
  const bool needs_grad = tensor.requires_grad();
  at::Tensor result;
  {
    const BelowAutograd below;
    const at::Tensor whole = tensor.detach().resolve_conj().resolve_neg();
    at::Tensor tile;
    if (whole.device().type() != device_of(mesh).type()) {
      tile = tile_without_values(spec, world);
    } else if (options.source) {
      const CommLabel label("distribute_tensor");
      tile = scatter_from(world, whole, rank_at_place(mesh, *options.source, world), spec);
    } else if (mesh.coordinate_of(world.rank())) {
      tile = redistribute_tile(world, whole, replicated_spec(spec), spec);
      if (tile.is_same(whole)) tile = whole.clone();
    } else {
      tile = no_tile(spec);
    }
    result = outer_tensor(tile, spec, world);
  }
  return result.set_requires_grad(needs_grad);
}

at::Tensor shard_batch(const at::Tensor& batch, const DeviceMesh& mesh, std::string_view axis) {
  Placements placements(mesh.ndim(), Replicate());
  placements[data_axis_of(mesh, axis)] = Shard(0);
  return distribute_tensor(batch, mesh, placements, kSameOnAllRanks);
}

at::Tensor to_local(const at::Tensor& tensor, const std::optional<Placements>& grad_placements) {
  const PayloadPtr payload = payload_or_throw(tensor, "to_local");
  const DTensorSpec grad_spec = gradient_spec_for(payload->spec(), grad_placements);
  at::Tensor tile = unwrap_tile(tensor, grad_spec);
  if (is_checking(payload->world()) && tile.requires_grad() && payload->coordinate()) {
    tile.register_hook([grad_spec, world = payload->world()](const at::Tensor& grad) {
      check_replicas("the gradient of to_local", grad, grad_spec, world);
    });
  }
  return tile;
}

at::Tensor full_tensor(const at::Tensor& tensor, const std::optional<Placements>& grad_placements) {
  const PayloadPtr payload = payload_or_throw(tensor, "full_tensor");
  const DTensorSpec whole = replicated_spec(payload->spec());
  const CommLabel label("full_tensor");
  return unwrap_tile(move_to(tensor, whole, CallMode::Sync, {}),
                     gradient_spec_for(whole, grad_placements));
}

at::Tensor redistribute(const at::Tensor& tensor, const Placements& placements,
                        const RedistributeOptions& options) {
  return redistribute(tensor, mesh_of(tensor), placements, options);
}

at::Tensor redistribute(const at::Tensor& tensor, const DeviceMesh& mesh,
                        const Placements& placements, const RedistributeOptions& options) {
  const PayloadPtr payload = payload_or_throw(tensor, "redistribute");
  if (!(World::of(mesh) == payload->world())) {
    throw UsageError("a tensor cannot move to a mesh of another world")
        .fact("tensor", to_string(payload->spec()))
        .fact("mesh", to_string(mesh))
        .hint("make both meshes with one World");
  }
  const DTensorSpec to = spec_for(mesh, placements, options.order, payload->spec().meta());
  const CommLabel label("redistribute");
  claim_operators();
  return move_to(tensor, to, options.async_op ? CallMode::Async : CallMode::Sync,
                 {options.wire, options.memory_cap});
}

namespace {

// How the gradients that ranks find for their tiles make one: those of replicas add up.
DTensorSpec sum_of_gradients(const DTensorSpec& spec) {
  Placements placements = with_reductions_done(spec).placements();
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    const bool is_alike = spec.placements()[axis] == Placement(Replicate());
    if (is_alike) placements[axis] = Partial(ReduceOp::Sum);
  }
  return {spec.mesh(), placements, spec.shard_order(), spec.meta()};
}

// The same tensor, which all ranks hold alike over some axes: its gradient comes to one of them.
at::Tensor with_gradient_once(const at::Tensor& result, const DeviceMesh& mesh,
                              const Placements& placements) {
  const std::optional<Coordinate> at = mesh.coordinate_of(World::of(mesh).rank());
  if (!result.requires_grad() || !at || placements.size() != mesh.ndim()) return result;
  bool is_first = true;
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis] == Placement(Replicate()) && (*at)[axis] > 0) is_first = false;
  }
  if (is_first) return result;
  const at::Tensor alias = result.view_as(result);
  alias.register_hook([](const at::Tensor& grad) {
    return grad.masked_fill(at::scalar_tensor(true, at::kBool), 0);
  });
  return alias;
}

// Ranks that wait for this one's results learn what the function threw.
std::vector<at::Tensor> told_to_others(const LocalFunction& function,
                                       const std::vector<at::Tensor>& locals,
                                       const DeviceMesh& mesh) {
  try {
    return function(locals);
  } catch (...) {
    const World world = World::of(mesh);
    const std::optional<std::int64_t> fiber = mesh.fiber_of(world.rank());
    if (fiber) {
      comm::note_error(world, mesh.ranks(*fiber),
                       "the function of local_map: " + sentence_of(std::current_exception()));
    }
    throw;
  }
}

}  // namespace

std::vector<at::Tensor> local_map(const LocalFunction& function,
                                  const std::vector<at::Tensor>& inputs,
                                  const std::vector<Placements>& out_placements,
                                  const LocalMapOptions& options) {
  std::vector<at::Tensor> locals;
  std::optional<DeviceMesh> mesh;
  std::size_t index = 0;
  for (const at::Tensor& input : inputs) {
    if (!is_dtensor(input)) {
      locals.push_back(input);
      continue;
    }
    if (!mesh) mesh = mesh_of(input);
    const at::Tensor placed = index < options.in_placements.size()
                                  ? redistribute(input, options.in_placements[index])
                                  : input;
    if (index < options.in_grad_placements.size()) {
      locals.push_back(to_local(placed, options.in_grad_placements[index]));
    } else {
      locals.push_back(placed.requires_grad()
                           ? unwrap_tile(placed, sum_of_gradients(spec_of(placed)))
                           : to_local(placed));
    }
    ++index;
  }
  if (!mesh)
    throw UsageError("local_map needs a DTensor among its inputs").hint("call the function itself");
  std::vector<at::Tensor> results = told_to_others(function, locals, *mesh);
  if (results.size() != out_placements.size()) {
    throw UsageError("local_map needs placements for each result")
        .fact("results", std::to_string(results.size()))
        .fact("out_placements", std::to_string(out_placements.size()))
        .hint("list one Placements per result");
  }
  for (std::size_t k = 0; k < results.size(); ++k) {
    results[k] = from_local(with_gradient_once(results[k], *mesh, out_placements[k]), *mesh,
                            out_placements[k]);
  }
  return results;
}

}  // namespace tegula
