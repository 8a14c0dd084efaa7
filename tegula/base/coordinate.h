// A place in a mesh: one coordinate per axis.
#pragma once

#include <cstdint>
#include <vector>

namespace tegula {

using Coordinate = std::vector<std::int64_t>;

}  // namespace tegula
