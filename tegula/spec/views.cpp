// The idea: a view renames dims (cuts move along), or shortens one (each shard keeps its part, so
// sizes are listed anew). How it regroups them: regrouped.cpp.
#include "tegula/spec/views.h"

#include <algorithm>

#include "tegula/spec/view_draft.h"

namespace tegula::inner {
namespace {

Coordinate place_of_shard(const DTensorSpec& spec, const DimCut& cut, std::int64_t shard) {
  Coordinate at(spec.mesh().ndim(), 0);
  const std::vector<std::int64_t> position = cut.position_of(shard);
  for (std::size_t k = 0; k < position.size(); ++k) at[cut.axes()[k].axis] = position[k];
  return at;
}

// The same axes, so that their shards have these sizes.
std::vector<CutAxis> cut_into(const std::vector<CutAxis>& axes,
                              const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> ranks;
  for (const CutAxis& axis : axes) ranks.push_back(axis.ranks);
  const std::vector<Cut> cuts = ragged_cuts(ranks, sizes);
  std::vector<CutAxis> cut_axes = axes;
  for (std::size_t k = 0; k < axes.size(); ++k) cut_axes[k].cut = cuts[k];
  return cut_axes;
}

}  // namespace

std::optional<DTensorSpec> with_dims_moved(const DTensorSpec& spec,
                                           const std::vector<std::optional<std::int64_t>>& to,
                                           const TensorMeta& meta) {
  ViewDraft draft(spec);
  for (std::size_t dim = 0; dim < to.size(); ++dim) {
    const DimCut& cut = spec.dim_cuts()[dim];
    if (!cut.is_cut()) continue;
    if (!to[dim]) return std::nullopt;
    draft.cut(*to[dim], cut.axes());
  }
  return draft.finish(meta);
}

DimSlice slice_within(const DimSlice& slice, const Interval& interval) {
  const std::int64_t skipped =
      interval.begin <= slice.begin ? 0 : ceil_div(interval.begin - slice.begin, slice.step);
  const std::int64_t first = slice.begin + skipped * slice.step;
  const std::int64_t end = std::min(slice.end, interval.end());
  if (first >= end) return {slice.dim, 0, 0, slice.step};
  return {slice.dim, first - interval.begin, end - interval.begin, slice.step};
}

std::optional<DTensorSpec> sliced(const DTensorSpec& spec, const DimSlice& slice,
                                  const TensorMeta& meta) {
  ViewDraft draft(spec);
  for (std::size_t dim = 0; dim < spec.dim_cuts().size(); ++dim) {
    const DimCut& cut = spec.dim_cuts()[dim];
    if (!cut.is_cut()) continue;
    if (static_cast<std::int64_t>(dim) != slice.dim) {
      draft.cut(static_cast<std::int64_t>(dim), cut.axes());
      continue;
    }
    if (cut.most_intervals() > 1) return std::nullopt;
    std::vector<std::int64_t> sizes;
    for (std::int64_t shard = 0; shard < cut.shard_count(); ++shard) {
      const Interval held = cut.intervals(place_of_shard(spec, cut, shard)).front();
      const DimSlice mine = slice_within(slice, held);
      sizes.push_back(ceil_div(mine.end - mine.begin, mine.step));
    }
    draft.cut(slice.dim, cut_into(cut.axes(), sizes));
  }
  return draft.finish(meta);
}

}  // namespace tegula::inner
