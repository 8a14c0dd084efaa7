// Specs of the same tensor placed otherwise, or lying otherwise in memory.
#pragma once

#include <string>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// Every rank of the mesh holds the whole.
DTensorSpec replicated_spec(const DeviceMesh& mesh, const TensorMeta& meta);
DTensorSpec replicated_spec(const DTensorSpec& spec);

// With these placements, by which an axis cuts what it cuts in `spec` or nothing; the axes that do
// keep their order.
DTensorSpec with_order_kept(const DTensorSpec& spec, const Placements& placements);

// The same placements of a tensor that lies densely, its dims in the same order.
DTensorSpec densely(const DTensorSpec& spec);

// Replicated where a reduction is owed; shards stay, in their order.
DTensorSpec with_reductions_done(const DTensorSpec& spec);

// Replicated along the axes that cut this dim; others stay, in their order.
DTensorSpec with_dim_whole(const DTensorSpec& spec, std::int64_t dim);

// Replicated along the axes of these names; others stay, in their order.
DTensorSpec with_axes_whole(const DTensorSpec& spec, const std::vector<std::string>& axes);

// The same elements with the dims in another order: dim k of the result is dim order[k].
DTensorSpec permuted(const DTensorSpec& spec, const std::vector<std::int64_t>& order);

}  // namespace tegula::inner
