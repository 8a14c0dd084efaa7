// PyTorch's notation for what a ShardOrder or a cut in blocks says here.
//
// PyTorch has no shard order and no blocks in its placements; it has _StridedShard(dim, sf),
// printed _S(0, 2): the dim is split into sf groups, each group among the ranks. Two things are
// written so:
//
//   an order   [_S(0, 2), S(0)] on (a=2, b=2): b cuts dim 0 first, then a. The split factor of an
//              axis is the number of pieces made by later axes that cut before it.
//   blocks     [_S(0, 3)] on (a=4): what flattening [3, n] cut over n leaves.
//
// A list is read as an order if all split factors of a dim fit one, as PyTorch does; otherwise
// axes cut in the order of the mesh, in blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula {

struct StridedShard {
  std::int64_t dim = 0;
  std::int64_t split_factor = 1;
  bool operator==(const StridedShard&) const = default;
};

using TorchPlacement = std::variant<Placement, StridedShard>;
using TorchPlacements = std::vector<TorchPlacement>;

// UsageError as for a DTensorSpec, and for a split factor below 1.
DTensorSpec from_torch_placements(const DeviceMesh& mesh, const TorchPlacements& placements,
                                  const TensorMeta& meta);

// Law: from_torch_placements(mesh, to_torch_placements(spec), meta) cuts the tensor into the same
// slices as spec. UsageError if PyTorch has no words for the spec (given shard sizes, blocks that
// differ from piece to piece or stand in another order than the mesh's). O(shards) if a dim is
// cut in blocks.
TorchPlacements to_torch_placements(const DTensorSpec& spec);

// "[_S(0, 2), S(0)]"
std::string to_string(const TorchPlacements& placements);
TorchPlacements parse_torch_placements(std::string_view text);
// One of them; what is no _S is a Placement.
TorchPlacement parse_torch_placement(Scanner& scan);

}  // namespace tegula
