#include "tegula/payload/unexpanded.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/payload/expanded.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/slices.h"

namespace tegula::inner {
namespace {

std::vector<bool> expanded_dims(const DTensorSpec& spec) {
  std::vector<bool> dims;
  for (std::size_t dim = 0; dim < spec.shape().size(); ++dim) {
    dims.push_back(spec.meta().stride()[dim] == 0 && spec.shape()[dim] > 1 &&
                   spec.dim_cuts()[dim].axes().empty());
  }
  return dims;
}

// Of a tensor that has one element along these dims, which no axis cuts.
DTensorSpec with_one_along(const DTensorSpec& spec, const std::vector<bool>& dims) {
  const auto is_one = [&](std::int64_t dim) { return dims[static_cast<std::size_t>(dim)]; };
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (shard && is_one(shard->dim())) placement = Replicate();
  }
  ShardOrder order;
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    if (!is_one(entry.dim)) order.push_back(entry);
  }
  Shape shape = spec.shape();
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (dims[dim]) shape[dim] = 1;
  }
  return {spec.mesh(), placements, order, TensorMeta(shape, spec.meta().dtype())};
}

}  // namespace

bool can_pay_unexpanded(const DTensorSpec& spec) {
  if (!spec.is_partial()) return false;
  const std::vector<bool> dims = expanded_dims(spec);
  if (std::find(dims.begin(), dims.end(), true) == dims.end()) return false;
  return std::all_of(spec.placements().begin(), spec.placements().end(), [](const auto& placement) {
    return !std::holds_alternative<MaskPartial>(placement);
  });
}

at::Tensor paid_unexpanded(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                           const DTensorSpec& to) {
  const std::optional<Coordinate> at = to.mesh().coordinate_of(world.rank());
  if (!at) return tile;
  const std::vector<bool> dims = expanded_dims(from);
  at::Tensor one = tile;
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    if (dims[dim]) one = one.narrow(static_cast<std::int64_t>(dim), 0, 1);
  }
  const at::Tensor paid =
      redistribute_tile(world, one, with_one_along(from, dims), with_one_along(to, dims));
  return in_tile_layout(paid.expand(local_shape(to, *at)).contiguous(), to, *at);
}

}  // namespace tegula::inner
