// The idea: a view renames dims (cuts move along), or shortens one (each shard keeps its part, so
// sizes are listed anew). How it regroups them: regrouped.cpp.
#include "tegula/spec/views.h"

#include <algorithm>

#include "tegula/spec/view_draft.h"

namespace tegula::inner {
namespace {

// What two intervals have in common; empty if nothing.
Interval common(const Interval& a, const Interval& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - begin)};
}

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

DimSlice slice_within(const DimSlice& slice, const std::vector<Interval>& intervals) {
  if (intervals.size() == 1) return slice_within(slice, intervals.front());
  DimSlice mine{slice.dim, 0, 0, 1};
  for (const Interval& interval : intervals) {
    mine.begin += common(interval, {0, slice.begin}).size;
    mine.end += common(interval, {0, slice.end}).size;
  }
  return mine;
}

namespace {

// A dim that is cut in blocks, sliced without steps: within a block each shard has one run, in the
// order of the shards. None if that is not so.
std::optional<std::vector<CutAxis>> sliced_within_block(const DTensorSpec& spec, const DimCut& cut,
                                                        const DimSlice& slice) {
  std::vector<std::int64_t> sizes;
  std::int64_t next = slice.begin;
  for (std::int64_t shard = 0; shard < cut.shard_count(); ++shard) {
    std::int64_t size = 0;
    for (const Interval& held : cut.intervals(place_of_shard(spec, cut, shard))) {
      const Interval mine = common(held, {slice.begin, slice.end - slice.begin});
      if (mine.size == 0) continue;
      if (mine.begin != next) return std::nullopt;
      size += mine.size;
      next += mine.size;
    }
    sizes.push_back(size);
  }
  return cut_into(cut.axes(), sizes);
}

// ... of whole blocks there are fewer ...
std::optional<std::vector<CutAxis>> sliced_by_blocks(const DimCut& cut, const DimSlice& slice) {
  if (cut.axes().size() != 1 || cut.axes()[0].cut.blocks().size() != 1) return std::nullopt;
  const std::int64_t run = ceil_div(cut.size(), cut.axes()[0].cut.blocks()[0]);
  const bool is_whole = slice.begin % run == 0 && slice.end % run == 0 && slice.end > slice.begin;
  if (!is_whole) return std::nullopt;
  CutAxis axis = cut.axes()[0];
  axis.cut = Cut({(slice.end - slice.begin) / run}, axis.cut.sizes());
  return std::vector<CutAxis>{axis};
}

// ... and else the ranks along one axis take turns; not too many, as each is listed.
std::optional<std::vector<CutAxis>> sliced_by_turns(const DimCut& cut, const DimSlice& slice) {
  constexpr double kMostSizes = 1024;
  const std::int64_t length = slice.end - slice.begin;
  if (cut.axes().size() != 1 || length < 1) return std::nullopt;
  CutAxis axis = cut.axes()[0];
  const double share = static_cast<double>(length) / static_cast<double>(cut.size());
  const double sizes_of_dim = static_cast<double>(cut.most_intervals() + 1) * axis.ranks;
  if (share * sizes_of_dim > kMostSizes) return std::nullopt;
  std::vector<Share> runs = cut.owners({slice.begin, length});
  std::sort(runs.begin(), runs.end(),
            [](const Share& a, const Share& b) { return a.whole.begin < b.whole.begin; });
  std::vector<std::int64_t> sizes;
  for (const Share& run : runs) {
    while (static_cast<std::int64_t>(sizes.size()) % axis.ranks != run.shard) sizes.push_back(0);
    sizes.push_back(run.whole.size);
  }
  while (static_cast<std::int64_t>(sizes.size()) % axis.ranks != 0) sizes.push_back(0);
  axis.cut = Cut::ragged(std::move(sizes));
  return std::vector<CutAxis>{axis};
}

}  // namespace

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
    if (cut.most_intervals() > 1) {
      if (slice.step != 1) return std::nullopt;
      std::optional<std::vector<CutAxis>> axes = sliced_within_block(spec, cut, slice);
      if (!axes) axes = sliced_by_blocks(cut, slice);
      if (!axes) axes = sliced_by_turns(cut, slice);
      if (!axes) return std::nullopt;
      draft.cut(slice.dim, *axes);
      continue;
    }
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
