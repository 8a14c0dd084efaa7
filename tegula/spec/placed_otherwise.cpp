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

}  // namespace tegula::inner
