// Elements where a mask is true. If of the dims that the mask covers only the first is cut, each
// rank has a run of the result: ranks tell each other how many elements they have, and the result
// is cut where they meet. Nothing else travels. If another dim is cut, the cut moves to the first
// one before.
#include <ATen/ATen.h>

#include <map>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/overlaps.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/families/masks.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/totals.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/views.h"

namespace tegula::inner::families {
namespace {

// The axis that cuts the first dim. None if there is none or several, or if another dim among the
// first `covered` is cut: a rank has no run of the elements then.
std::optional<std::size_t> axis_of_runs(const at::Tensor& self, std::int64_t covered) {
  const Payload* payload = payload_in(self);
  if (!payload || !holds_values(*payload) || !payload->coordinate() || covered == 0) {
    return std::nullopt;
  }
  const std::vector<DimCut>& cuts = payload->spec().dim_cuts();
  for (std::int64_t dim = 1; dim < covered; ++dim) {
    if (cuts[static_cast<std::size_t>(dim)].is_cut()) return std::nullopt;
  }
  if (cuts[0].axes().size() != 1 || cuts[0].most_intervals() > 1) return std::nullopt;
  return cuts[0].axes()[0].axis;
}

// The spec that self would have if its only cut were along the first dim. None if it is there, if
// there are several, or if strict mode forbids to move it.
std::optional<DTensorSpec> cut_along_first(const at::Tensor& self) {
  const Payload* payload = payload_in(self);
  if (!payload || !holds_values(*payload) || !payload->coordinate() || StrictMode::is_on()) {
    return std::nullopt;
  }
  Placements placements = payload->spec().placements();
  std::size_t cuts = 0;
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (!shard) continue;
    if (shard->dim() == 0) return std::nullopt;
    placement = Shard(0);
    ++cuts;
  }
  if (cuts != 1 || self.size(0) < 2) return std::nullopt;
  const TensorMeta meta(payload->spec().shape(), payload->spec().meta().dtype());
  return DTensorSpec(payload->spec().mesh(), placements, meta);
}

// The recipe, on self with its cut moved.
template <Values (*run)(Arguments)>
Recipe with_cut_moved(const at::Tensor& self) {
  const std::optional<DTensorSpec> spec = cut_along_first(self);
  if (!spec) return nullptr;
  return [spec = *spec](Arguments a) {
    Values moved(a.begin(), a.end());
    moved[0] = move_to(tensor_at(a, 0), spec, CallMode::Sync, {});
    return run(moved);
  };
}

// What each rank along the axis has.
std::vector<std::int64_t> counts_of(std::int64_t mine, const Payload& self, std::size_t axis) {
  const Group group = self.world().group(self.spec().mesh(), axis);
  const at::Tensor counts = group.all_gather(at::full({1}, mine, at::kLong), 0);
  return {counts.data_ptr<std::int64_t>(), counts.data_ptr<std::int64_t>() + counts.numel()};
}

// How elements are cut that stand in place of the first `covered` dims of self; further dims as
// they are in self.
DTensorSpec spec_of_runs(const Payload& self, std::int64_t covered, std::size_t axis,
                         const std::vector<std::int64_t>& counts, Shape shape, DType type) {
  DTensorSpec uncut = with_dim_whole(self.spec(), 0);
  std::vector<std::optional<std::int64_t>> to;
  for (std::int64_t dim = 0; dim < self.spec().ndim(); ++dim) {
    to.push_back(dim < covered ? std::nullopt : std::optional(dim - covered + 1));
  }
  const DTensorSpec rest = *with_dims_moved(uncut, to, TensorMeta(shape, type));
  Placements placements = rest.placements();
  placements[axis] = Shard(0, Cut::ragged(counts));
  ShardOrder order = rest.shard_order();
  order.insert(order.begin(), {0, {axis}});
  return {rest.mesh(), placements, order, rest.meta()};
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (std::int64_t count : counts) sum += count;
  return sum;
}

// The mask, as long as self's first dims and cut alike.
at::Tensor mask_beside(const Payload& self, const at::Tensor& mask) {
  DTensorSpec spec = self.spec();
  for (std::int64_t dim = mask.dim(); dim < spec.ndim(); ++dim) spec = with_dim_whole(spec, dim);
  const TensorMeta meta(mask.sizes().vec(), dtype_of(mask.scalar_type()));
  std::vector<std::optional<std::int64_t>> to;
  for (std::int64_t dim = 0; dim < spec.ndim(); ++dim) {
    to.push_back(dim < mask.dim() ? std::optional(dim) : std::nullopt);
  }
  return tile_at(mask, *with_dims_moved(spec, to, meta), self.world());
}

bool covers_first_dims(const at::Tensor& mask, const at::Tensor& self) {
  return mask.scalar_type() == at::kBool && mask.dim() <= self.dim() &&
         mask.sizes() == self.sizes().slice(0, static_cast<std::size_t>(mask.dim()));
}

// Reads -------------------------------------------------------------------------------------------

at::Tensor rows_where(const at::Tensor& self, const at::Tensor& mask) {
  const Payload& payload = *payload_in(self);
  const std::size_t axis = *axis_of_runs(self, mask.dim());
  const at::Tensor mine = payload.resolved_tile().index({mask_beside(payload, mask)}).contiguous();
  const std::vector<std::int64_t> counts = counts_of(mine.size(0), payload, axis);
  Shape shape = self.sizes().slice(static_cast<std::size_t>(mask.dim())).vec();
  shape.insert(shape.begin(), total(counts));
  const DTensorSpec spec =
      spec_of_runs(payload, mask.dim(), axis, counts, shape, dtype_of(self.scalar_type()));
  return outer_tensor(mine, spec, payload.world());
}

Values masked_select(Arguments a) { return {rows_where(tensor_at(a, 0), tensor_at(a, 1))}; }

Recipe make_masked_select(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const at::Tensor& mask = tensor_at(call.arguments(), 1);
  if (!covers_first_dims(mask, self) || mask.dim() != self.dim()) return nullptr;
  if (!is_on_mesh_of(call, payload_in(self))) return nullptr;
  return axis_of_runs(self, self.dim()) ? masked_select : with_cut_moved<masked_select>(self);
}

Values nonzero(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const Payload& payload = *payload_in(self);
  const std::size_t axis = *axis_of_runs(self, self.dim());
  const at::Tensor mine = payload.resolved_tile().nonzero().contiguous();
  mine.select(1, 0).add_(
      payload.spec().dim_cuts()[0].intervals(*payload.coordinate()).front().begin);
  const std::vector<std::int64_t> counts = counts_of(mine.size(0), payload, axis);
  const DTensorSpec spec =
      spec_of_runs(payload, self.dim(), axis, counts, {total(counts), self.dim()}, DType::I64);
  return {outer_tensor(mine, spec, payload.world())};
}

Recipe make_nonzero(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return axis_of_runs(self, self.dim()) ? nonzero : with_cut_moved<nonzero>(self);
}

// Writes ------------------------------------------------------------------------------------------

// Elements of source, one after the other, where the mask is true: this rank's tile.
at::Tensor scattered(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  const Payload& payload = *payload_in(self);
  const std::size_t axis = *axis_of_runs(self, self.dim());
  const at::Tensor where = mask_beside(payload, mask);
  const std::vector<std::int64_t> counts =
      counts_of(where.sum().item<std::int64_t>(), payload, axis);
  if (source.numel() < total(counts)) {
    throw UsageError("a mask is true for more elements than there are to be scattered")
        .fact("true", std::to_string(total(counts)))
        .fact("elements", std::to_string(source.numel()));
  }
  const at::Tensor taken = source.reshape({-1}).slice(0, 0, total(counts));
  const DTensorSpec spec = spec_of_runs(payload, self.dim(), axis, counts, {total(counts)},
                                        dtype_of(source.scalar_type()));
  return payload.tile().masked_scatter(where, tile_at(taken, spec, payload.world()));
}

Values masked_scatter(Arguments a) {
  const Payload& self = *payload_in(tensor_at(a, 0));
  const DTensorSpec spec =
      self.spec().with_meta(TensorMeta(self.spec().shape(), self.spec().meta().dtype()));
  const at::Tensor tile = fresh_tile(spec, self.world());
  tile.copy_(scattered(tensor_at(a, 0), tensor_at(a, 1), tensor_at(a, 2)));
  return {outer_tensor(tile, spec, self.world())};
}

Values masked_scatter_in_place(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  payload_in(self)->tile().copy_(scattered(self, tensor_at(a, 1), tensor_at(a, 2)));
  return {self};
}

Recipe make_masked_scatter(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const at::Tensor& mask = tensor_at(call.arguments(), 1);
  if (!covers_first_dims(mask, self) || mask.dim() != self.dim()) return nullptr;
  if (self.scalar_type() != tensor_at(call.arguments(), 2).scalar_type()) return nullptr;
  if (!is_on_mesh_of(call, payload_in(self)) || !axis_of_runs(self, self.dim())) return nullptr;
  if (!call.facts().writes) return masked_scatter;
  return overlaps_itself(self) ? nullptr : masked_scatter_in_place;
}

}  // namespace

Recipe index_by_mask(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const c10::IValue& list = call.arguments()[1];
  if (list.toListRef().size() != 1 || !list.toListRef()[0].isTensor()) return nullptr;
  const at::Tensor& mask = list.toListRef()[0].toTensor();
  if (!is_on_mesh_of(call, payload_in(self))) return nullptr;
  if (!covers_first_dims(mask, self) || !axis_of_runs(self, mask.dim())) return nullptr;
  return [](Arguments a) -> Values {
    return {rows_where(tensor_at(a, 0), a[1].toListRef()[0].toTensor())};
  };
}

void masks(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::masked_select", make_masked_select},
      {"aten::nonzero", make_nonzero},
      {"aten::masked_scatter", make_masked_scatter},
      {"aten::masked_scatter_", make_masked_scatter},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
