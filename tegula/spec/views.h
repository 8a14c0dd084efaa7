// How a view of a distributed tensor is distributed, when every rank can make its part of it as a
// view of its own tile: no element changes owner.
//
// Each function gives the spec of the view, or none if there is no such view; then it takes
// communication (or a form of cutting that cannot be written down).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// Old dim d becomes dim to[d]; none: the dim goes away (it must not be cut). The view's own shape
// and strides are `meta`.
std::optional<DTensorSpec> with_dims_moved(const DTensorSpec& spec,
                                           const std::vector<std::optional<std::int64_t>>& to,
                                           const TensorMeta& meta);

// The elements begin, begin + step, ... below end of a dim.
struct DimSlice {
  std::int64_t dim = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t step = 1;
};

// Shards keep what they hold of the slice, so they may become ragged. Of a dim of which ranks hold
// several runs there are slices within one, of whole blocks, and, if one axis cuts it, others that
// have few enough runs; without steps.
std::optional<DTensorSpec> sliced(const DTensorSpec& spec, const DimSlice& slice,
                                  const TensorMeta& meta);
// The same slice of an interval of the dim, counted from the interval's begin.
DimSlice slice_within(const DimSlice& slice, const Interval& interval);
// The same of the intervals that a shard holds, counted in its own elements. A slice with steps has
// one interval to be in.
DimSlice slice_within(const DimSlice& slice, const std::vector<Interval>& intervals);

// The same elements in the same order, grouped into other dims. None where shards would mix.
//   [8, 6] as [S(0)] -> [48] as [S(0)];   [4, 6] as [S(1)] -> [24] as [S(0, blocks=4)], and back
//   [4, 6] as [S(0), S(1)] -> [24] as [S(0), S(0, blocks=2)], and back
std::optional<DTensorSpec> regrouped(const DTensorSpec& spec, const TensorMeta& meta);

}  // namespace tegula::inner
