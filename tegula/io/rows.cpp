// The idea: files hold whole tensors in row-major order. Redistributing to rows makes each rank's
// share one run of bytes, whatever the tensor was cut by; each byte then crosses the disk once, in
// large pieces, and what has to travel between ranks does so at the speed of memory.
#include "tegula/io/rows.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "tegula/bridge/torch_types.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/slices.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

// The axes that cut dim 0 into one run for each rank, in their order; none if a rank has several.
std::vector<std::size_t> axes_by_rows(const DTensorSpec& spec) {
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    if (entry.dim == 0 && spec.dim_cuts()[0].most_intervals() == 1) return entry.axes;
  }
  return {};
}

bool is_by_rows(const at::Tensor& tensor) {
  const DTensorSpec is = spec_of(tensor), rows = spec_by_rows(is);
  return is.placements() == rows.placements() && is.shard_order() == rows.shard_order();
}

at::Tensor moved(const at::Tensor& tensor, const DTensorSpec& to) {
  return redistribute(tensor, to.placements(), {.order = to.shard_order()});
}

// Of a row-major tile's first byte; none if another rank has the same tile, which counts.
std::optional<std::int64_t> offset_at(const DTensorSpec& rows, const Coordinate& at) {
  if (rows.ndim() == 0) {
    const bool is_first = std::ranges::all_of(at, [](std::int64_t place) { return place == 0; });
    return is_first ? std::optional<std::int64_t>(0) : std::nullopt;
  }
  std::int64_t bytes = size_of(rows.meta().dtype());
  for (std::int64_t dim = 1; dim < rows.ndim(); ++dim) {
    bytes *= rows.shape()[static_cast<std::size_t>(dim)];
  }
  return slice_at(rows, at)[0].front().begin * bytes;
}

}  // namespace

DTensorSpec spec_by_rows(const DTensorSpec& spec) {
  const DeviceMesh& mesh = spec.mesh();
  const TensorMeta meta(spec.shape(), spec.meta().dtype());
  if (spec.ndim() == 0) return {mesh, Placements(mesh.ndim(), Replicate()), meta};
  Placements placements(mesh.ndim(), Shard(0));
  ShardOrderEntry entry{0, axes_by_rows(spec)};
  for (const std::size_t axis : entry.axes) placements[axis] = spec.placements()[axis];
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (std::ranges::find(entry.axes, axis) == entry.axes.end()) entry.axes.push_back(axis);
  }
  return {mesh, placements, {entry}, meta};
}

bool rows_travel(const DTensorSpec& spec) {
  const DTensorSpec rows = spec_by_rows(spec);
  for (std::size_t axis = 0; axis < spec.mesh().ndim(); ++axis) {
    const Placement& is = spec.placements()[axis];
    if (is != Placement(Replicate()) && is != rows.placements()[axis]) return true;
  }
  return axes_by_rows(spec).size() !=
         static_cast<std::size_t>(std::ranges::count_if(
             spec.placements(), [](const Placement& is) { return as_shard(is) != nullptr; }));
}

std::optional<Rows> rows_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const World world = world_of(tensor);
  const DeviceMesh mesh = mesh_of(tensor);
  const std::optional<Coordinate> at = mesh.coordinate_of(world.rank());
  if (!at || mesh.fiber_of(world.rank()) != 0) return std::nullopt;
  const DTensorSpec rows = spec_by_rows(spec_of(tensor));
  const at::Tensor tile = to_local(tensor.detach());
  const std::optional<std::int64_t> offset = offset_at(rows, *at);
  const at::Tensor local = to_local(moved(tensor.detach(), rows));
  if (!offset) return std::nullopt;
  const at::Tensor dense = local.resolve_conj().resolve_neg().to(host_device()).contiguous();
  const bool is_own = dense.has_storage() && tile.has_storage() && dense.is_alias_of(tile);
  return Rows{dense, *offset, is_own};
}

std::optional<RowsPlace> rows_place(const at::Tensor& tensor, at::ScalarType type) {
  const std::optional<Coordinate> at = mesh_of(tensor).coordinate_of(world_of(tensor).rank());
  if (!at) return std::nullopt;
  const DTensorSpec is = spec_of(tensor);
  const DTensorSpec rows = spec_by_rows(is).with_meta(TensorMeta(is.shape(), dtype_of(type)));
  return RowsPlace{is.ndim() == 0 ? 0 : *offset_at(rows, *at), local_shape(rows, *at)};
}

Rows rows_for(const at::Tensor& tensor, at::ScalarType type, const RowsPlace& place,
              ReusedMemory& memory) {
  const at::NoGradGuard no_grad;
  if (is_by_rows(tensor) && tensor.scalar_type() == type) {
    at::Tensor local = to_local(tensor.detach());
    if (local.is_contiguous() && !local.is_conj() && !local.is_neg() &&
        local.device() == host_device()) {
      return {local, place.offset, true};
    }
  }
  return {memory.tensor(place.shape, type), place.offset};
}

void take_rows(const at::Tensor& tensor, const Rows& rows) {
  const at::NoGradGuard no_grad;
  const DTensorSpec is = spec_of(tensor);
  payload_in(tensor)->note_write();
  if (rows.is_own) {
    rows.local.unsafeGetTensorImpl()->bump_version();
    return;
  }
  const DTensorSpec by_rows =
      spec_by_rows(is).with_meta(TensorMeta(is.shape(), dtype_of(rows.local.scalar_type())));
  const DeviceMesh mesh = mesh_of(tensor);
  FromLocalOptions options;
  options.shape = is.shape();
  options.order = by_rows.shard_order();
  options.check = false;
  const at::Tensor whole =
      from_local(rows.local.to(device_of(mesh)), mesh, by_rows.placements(), options);
  tensor.detach().copy_(redistribute(whole, is.placements(), {.order = is.shard_order()}));
}

}  // namespace tegula::inner
