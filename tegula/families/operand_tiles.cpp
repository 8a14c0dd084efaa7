#include "tegula/families/operand_tiles.h"

#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {

at::Tensor tile_at(const at::Tensor& tensor, const DTensorSpec& spec, const World& world) {
  const PayloadPtr payload = payload_of(tensor);
  if (payload && !payload->link() && payload->spec().mesh() == spec.mesh()) {
    const DTensorSpec from = densely(payload->spec());
    return redistribute_tile(world, payload->resolved_tile(), from, spec);
  }
  const at::Tensor whole = whole_of(tensor).resolve_conj().resolve_neg();
  return redistribute_tile(world, whole, replicated_spec(spec.mesh(), dense(meta_of(whole))), spec);
}

at::Tensor whole_of(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  return payload ? payload->whole() : tensor;
}

at::Tensor result_of_tile(const at::Tensor& tile, const DTensorSpec& spec, const World& world) {
  const std::optional<Coordinate> at = spec.mesh().coordinate_of(world.rank());
  return outer_tensor(at ? in_tile_layout(tile, spec, *at) : no_tile(spec), spec, world);
}

DTensorSpec cut_along_only(const DTensorSpec& spec, const std::vector<bool>& dims) {
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (!shard || !dims[static_cast<std::size_t>(shard->dim())]) placement = Replicate();
  }
  ShardOrder order;
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    if (dims[static_cast<std::size_t>(entry.dim)]) order.push_back(entry);
  }
  return {spec.mesh(), placements, order, dense(spec.meta())};
}

DTensorSpec cut_alike(const DTensorSpec& spec, const TensorMeta& meta,
                      const std::vector<bool>& moved) {
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (!shard) continue;
    const auto dim = static_cast<std::size_t>(shard->dim());
    const bool fits =
        meta.shape()[dim] == spec.shape()[dim] && spec.dim_cuts()[dim].most_intervals() == 1;
    if (moved[dim] && !fits) placement = Shard(shard->dim());
  }
  return {spec.mesh(), placements, spec.shard_order(), meta};
}

}  // namespace tegula::inner
