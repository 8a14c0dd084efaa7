// The idea: a view renames dims (cuts move along), shortens one (each shard keeps its part, so
// sizes are listed anew), or regroups them. Regrouping splits the old and the new shape into groups
// of equal product, as short as possible; within a group a cut survives if it cuts the group's
// elements into runs that the new dims can express.
#include "tegula/spec/views.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tegula::inner {
namespace {

Coordinate place_of_shard(const DTensorSpec& spec, const DimCut& cut, std::int64_t shard) {
  Coordinate at(spec.mesh().ndim(), 0);
  const std::vector<std::int64_t> position = cut.position_of(shard);
  for (std::size_t k = 0; k < position.size(); ++k) at[cut.axes()[k].axis] = position[k];
  return at;
}

// The size of each shard of a dim; none if shards hold more than one interval.
std::optional<std::vector<std::int64_t>> shard_sizes(const DTensorSpec& spec, const DimCut& cut) {
  if (cut.most_intervals() > 1) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (std::int64_t shard = 0; shard < cut.shard_count(); ++shard) {
    sizes.push_back(cut.local_size(place_of_shard(spec, cut, shard)));
  }
  return sizes;
}

// Placements and shard order of a view under construction.
class Draft {
 public:
  explicit Draft(const DTensorSpec& spec) : spec_(spec), placements_(spec.placements()) {
    for (Placement& placement : placements_) {
      if (as_shard(placement)) placement = Replicate();
    }
  }

  // These axes cut this dim of the view, in this order.
  void cut(std::int64_t dim, const std::vector<CutAxis>& axes) {
    if (axes.empty()) return;
    ShardOrderEntry entry{dim, {}};
    for (const CutAxis& axis : axes) {
      placements_[axis.axis] = Shard(dim, axis.cut);
      entry.axes.push_back(axis.axis);
    }
    order_.push_back(std::move(entry));
  }
  // ... so that their shards have these sizes.
  void cut_into(std::int64_t dim, const std::vector<CutAxis>& axes,
                const std::vector<std::int64_t>& sizes) {
    std::vector<std::int64_t> ranks;
    for (const CutAxis& axis : axes) ranks.push_back(axis.ranks);
    const std::vector<Cut> cuts = ragged_cuts(ranks, sizes);
    std::vector<CutAxis> cut_axes = axes;
    for (std::size_t k = 0; k < axes.size(); ++k) cut_axes[k].cut = cuts[k];
    cut(dim, cut_axes);
  }

  DTensorSpec finish(const TensorMeta& meta) {
    std::sort(order_.begin(), order_.end(),
              [](const auto& a, const auto& b) { return a.dim < b.dim; });
    return {spec_.mesh(), placements_, order_, meta};
  }

 private:
  const DTensorSpec& spec_;
  Placements placements_;
  ShardOrder order_;
};

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1},
                         std::multiplies<>());
}

// Dims [old_begin, old_end) become dims [new_begin, new_end).
struct DimGroup {
  std::size_t old_begin, old_end, new_begin, new_end;
};

// Shapes of equal, positive product.
std::vector<DimGroup> group_dims(const Shape& before, const Shape& after) {
  std::vector<DimGroup> groups;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < before.size() || j < after.size()) {
    const std::size_t i0 = i;
    const std::size_t j0 = j;
    std::int64_t a = i < before.size() ? before[i++] : 1;
    std::int64_t b = j < after.size() ? after[j++] : 1;
    while (a != b) {
      if (a < b) {
        a *= before[i++];
      } else {
        b *= after[j++];
      }
    }
    // trailing ones belong to the last group
    if (a == 1 && !groups.empty()) {
      groups.back().old_end = i;
      groups.back().new_end = j;
    } else {
      groups.push_back({i0, i, j0, j});
    }
  }
  return groups;
}

// Where in [begin, end) the product of the sizes before a dim that is not 1 equals `outer`.
std::optional<std::size_t> dim_below(const Shape& shape, std::size_t begin, std::size_t end,
                                     std::int64_t outer) {
  std::int64_t above = 1;
  for (std::size_t dim = begin; dim < end; ++dim) {
    if (above == outer && shape[dim] != 1) return dim;
    above *= shape[dim];
  }
  return std::nullopt;
}

// How the elements of a group are cut: `outer` equal blocks, each cut into these sizes (in elements
// of the group) by these axes.
struct GroupCut {
  std::int64_t outer = 1;
  std::vector<CutAxis> axes;
  std::vector<std::int64_t> sizes;
};

std::optional<GroupCut> cut_of_group(const DTensorSpec& spec, const DimGroup& group) {
  std::optional<GroupCut> found;
  for (std::size_t dim = group.old_begin; dim < group.old_end; ++dim) {
    const DimCut& cut = spec.dim_cuts()[dim];
    if (!cut.is_cut()) continue;
    if (found) return std::nullopt;  // two cut dims would interleave
    GroupCut result;
    result.axes = cut.axes();
    result.outer = product(spec.shape(), group.old_begin, dim);
    const std::int64_t inner = product(spec.shape(), dim + 1, group.old_end);
    if (std::optional<std::vector<std::int64_t>> sizes = shard_sizes(spec, cut)) {
      result.sizes = std::move(*sizes);
    } else {
      // one axis that cuts in equal blocks: the blocks count as a dim of their own
      const Cut& only = cut.axes().front().cut;
      if (cut.axes().size() != 1 || only.blocks().size() != 1 || only.sizes().size() > 1) {
        return std::nullopt;
      }
      const std::int64_t blocks = only.blocks().front();
      if (cut.size() % blocks != 0) return std::nullopt;
      const std::int64_t block = cut.size() / blocks;
      result.outer *= blocks;
      for (std::int64_t rank = 0; rank < cut.axes().front().ranks; ++rank) {
        result.sizes.push_back(only.sizes().empty()
                                   ? even_chunk(block, cut.axes().front().ranks, rank).size
                                   : only.sizes().front()[static_cast<std::size_t>(rank)]);
      }
    }
    for (std::int64_t& size : result.sizes) size *= inner;
    found = std::move(result);
  }
  return found ? found : GroupCut{};
}

bool all_divide(const std::vector<std::int64_t>& sizes, std::int64_t by) {
  return std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t size) { return size % by == 0; });
}

// Puts a group's cut on the new dims; false if they cannot express it.
bool place_cut(Draft& draft, const GroupCut& cut, const DimGroup& group, const Shape& after) {
  if (const auto dim = dim_below(after, group.new_begin, group.new_end, cut.outer)) {
    const std::int64_t inner = product(after, *dim + 1, group.new_end);
    const std::int64_t block = std::accumulate(cut.sizes.begin(), cut.sizes.end(), std::int64_t{0});
    if (block == after[*dim] * inner && all_divide(cut.sizes, inner)) {
      std::vector<std::int64_t> sizes = cut.sizes;
      for (std::int64_t& size : sizes) size /= inner;
      draft.cut_into(static_cast<std::int64_t>(*dim), cut.axes, sizes);
      return true;
    }
  }
  // blocks of a longer dim
  if (cut.axes.size() != 1) return false;
  std::int64_t above = 1;
  for (std::size_t dim = group.new_begin; dim < group.new_end; ++dim) {
    const std::int64_t inner = product(after, dim + 1, group.new_end);
    const bool spans = cut.outer % above == 0 && cut.outer / above > 1;
    if (spans && after[dim] % (cut.outer / above) == 0 && all_divide(cut.sizes, inner)) {
      std::vector<std::int64_t> sizes = cut.sizes;
      for (std::int64_t& size : sizes) size /= inner;
      const std::int64_t block = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
      if (block * (cut.outer / above) == after[dim]) {
        CutAxis axis = cut.axes.front();
        axis.cut = Cut({cut.outer / above}, {sizes});
        draft.cut(static_cast<std::int64_t>(dim), {axis});
        return true;
      }
    }
    above *= after[dim];
  }
  return false;
}

}  // namespace

std::optional<DTensorSpec> with_dims_moved(const DTensorSpec& spec,
                                           const std::vector<std::optional<std::int64_t>>& to,
                                           const TensorMeta& meta) {
  Draft draft(spec);
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
  Draft draft(spec);
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
    draft.cut_into(slice.dim, cut.axes(), sizes);
  }
  return draft.finish(meta);
}

std::optional<DTensorSpec> regrouped(const DTensorSpec& spec, const TensorMeta& meta) {
  if (!spec.is_sharded() || meta.shape() == spec.shape()) return spec.with_meta(meta);
  if (meta.numel() == 0 || meta.numel() != spec.meta().numel()) return std::nullopt;
  Draft draft(spec);
  for (const DimGroup& group : group_dims(spec.shape(), meta.shape())) {
    if (group.old_end - group.old_begin == 1 && group.new_end - group.new_begin == 1) {
      draft.cut(static_cast<std::int64_t>(group.new_begin),
                spec.dim_cuts()[group.old_begin].axes());
      continue;
    }
    const std::optional<GroupCut> cut = cut_of_group(spec, group);
    if (!cut) return std::nullopt;
    if (!cut->axes.empty() && !place_cut(draft, *cut, group, meta.shape())) return std::nullopt;
  }
  return draft.finish(meta);
}

}  // namespace tegula::inner
