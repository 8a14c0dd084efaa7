// How long the longest shard of a cut dim is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tegula/spec/dim_cut.h"

namespace tegula::inner {

// The greatest local size that a rank has once the first `axes` axes have cut the dim; all of them
// if not given. The cost does not depend on the number of ranks, unless a cut lists sizes or is
// given piece by piece: then it is that of reading the description.
std::int64_t longest_shard(const DimCut& cut, std::size_t axes);
std::int64_t longest_shard(const DimCut& cut);

}  // namespace tegula::inner
