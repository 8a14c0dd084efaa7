#include "tegula/spec/placed_otherwise.h"

#include <algorithm>

namespace tegula::inner {

DTensorSpec replicated_spec(const DeviceMesh& mesh, const TensorMeta& meta) {
  return {mesh, Placements(mesh.ndim(), Replicate()), meta};
}

DTensorSpec replicated_spec(const DTensorSpec& spec) {
  return replicated_spec(spec.mesh(), spec.meta());
}

DTensorSpec with_order_kept(const DTensorSpec& spec, const Placements& placements) {
  if (placements == spec.placements()) return spec;
  ShardOrder order = spec.shard_order();
  for (ShardOrderEntry& entry : order) {
    std::erase_if(entry.axes, [&](std::size_t axis) { return !as_shard(placements[axis]); });
  }
  std::erase_if(order, [](const ShardOrderEntry& entry) { return entry.axes.empty(); });
  return {spec.mesh(), placements, order, spec.meta()};
}

DTensorSpec densely(const DTensorSpec& spec) { return spec.with_meta(dense(spec.meta())); }

DTensorSpec with_reductions_done(const DTensorSpec& spec) {
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    if (owed_reduction(placement)) placement = Replicate();
  }
  return with_order_kept(spec, placements);
}

DTensorSpec with_dim_whole(const DTensorSpec& spec, std::int64_t dim) {
  Placements placements = spec.placements();
  for (const CutAxis& axis : spec.dim_cuts()[static_cast<std::size_t>(dim)].axes()) {
    placements[axis.axis] = Replicate();
  }
  return with_order_kept(spec, placements);
}

DTensorSpec with_axes_whole(const DTensorSpec& spec, const std::vector<std::string>& axes) {
  Placements placements = spec.placements();
  for (const std::string& axis : axes) placements[spec.mesh().axis_index(axis)] = Replicate();
  return with_order_kept(spec, placements);
}

DTensorSpec permuted(const DTensorSpec& spec, const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> place(order.size());
  Shape shape, stride;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto dim = static_cast<std::size_t>(order[k]);
    place[dim] = static_cast<std::int64_t>(k);
    shape.push_back(spec.meta().shape()[dim]);
    stride.push_back(spec.meta().stride()[dim]);
  }
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (shard) placement = Shard(place[static_cast<std::size_t>(shard->dim())], shard->cut());
  }
  ShardOrder cuts = spec.shard_order();
  for (ShardOrderEntry& entry : cuts) entry.dim = place[static_cast<std::size_t>(entry.dim)];
  std::sort(cuts.begin(), cuts.end(),
            [](const ShardOrderEntry& a, const ShardOrderEntry& b) { return a.dim < b.dim; });
  return {spec.mesh(), placements, cuts, TensorMeta(shape, stride, spec.meta().dtype())};
}

}  // namespace tegula::inner
