// ShardOrder: which axes cut a dim, in which order.
//
// Where two axes cut one dim it matters who cuts first: 10 rows over (a=2, b=2) give coordinate
// (0, 1) the rows 3:5 if a cuts first, and 5:8 if b does. The default is the order of the mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/placement/placement.h"

namespace tegula {

struct ShardOrderEntry {
  std::int64_t dim = 0;
  std::vector<std::size_t> axes;  // indices of mesh axes, the first to cut first
  bool operator==(const ShardOrderEntry&) const = default;
};

// One entry per dim that is cut, by ascending dim.
using ShardOrder = std::vector<ShardOrderEntry>;

// Every dim is cut in the order of the mesh's axes. Shard dims must not be negative.
ShardOrder default_shard_order(const Placements& placements);

// UsageError unless the order has exactly one entry for each dim that the placements cut, by
// ascending dim, listing exactly the axes that cut it, each once.
void check_shard_order(const ShardOrder& order, const Placements& placements);

// "{0: [1, 0], 2: [2]}": dim 0 is cut by axis 1, then by axis 0; dim 2 by axis 2.
std::string to_string(const ShardOrder& order);
ShardOrder parse_shard_order(std::string_view text);

}  // namespace tegula
