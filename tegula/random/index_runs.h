// Where the elements of a tile are, in the whole tensor and in memory.
#pragma once

#include <cstdint>
#include <functional>

#include "tegula/spec/slices.h"

namespace tegula::inner {

// Elements on a line in both: the i-th has the index `index + i * index_step` of the whole tensor's
// row-major order, and lies at `offset + i * offset_step` of the tile's memory, in elements.
struct IndexRun {
  std::int64_t index = 0;
  std::int64_t index_step = 1;
  std::int64_t offset = 0;
  std::int64_t offset_step = 1;
  std::int64_t count = 1;
  bool operator==(const IndexRun&) const = default;
};

// Visits each element of the tile once, in long runs: a dense tile of whole rows is one run.
// `whole` is the whole tensor's shape, `stride` has one stride of the tile per dim.
void for_each_run(const TensorSlice& slice, const Shape& whole, const Shape& stride,
                  const std::function<void(const IndexRun&)>& visit);

}  // namespace tegula::inner
