#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {

DTensorSpec replicated_spec(const DeviceMesh& mesh, const TensorMeta& meta) {
  return {mesh, Placements(mesh.ndim(), Replicate()), meta};
}

DTensorSpec replicated_spec(const DTensorSpec& spec) {
  return replicated_spec(spec.mesh(), spec.meta());
}

DTensorSpec with_reductions_done(const DTensorSpec& spec) {
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    if (owed_reduction(placement)) placement = Replicate();
  }
  return {spec.mesh(), placements, spec.shard_order(), spec.meta()};
}

DTensorSpec with_dim_whole(const DTensorSpec& spec, std::int64_t dim) {
  Placements placements = spec.placements();
  for (const CutAxis& axis : spec.dim_cuts()[static_cast<std::size_t>(dim)].axes()) {
    placements[axis.axis] = Replicate();
  }
  ShardOrder order;
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    if (entry.dim != dim) order.push_back(entry);
  }
  return {spec.mesh(), placements, order, spec.meta()};
}

}  // namespace tegula::inner
