// The idea: regrouping splits the old and the new shape into groups of equal product, as short as
// possible. The axes that cut the dims of a group, one dim after the other, cut the group's
// elements: an axis of a dim cuts them in blocks, one per index of the dims before it that the rank
// holds. The new dims take these axes in the same order, each the dim whose blocks are the same
// ones. O(shards * dims).
#include <algorithm>
#include <functional>
#include <numeric>

#include "tegula/spec/view_draft.h"
#include "tegula/spec/views.h"

namespace tegula::inner {
namespace {

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

// How an axis cuts one piece: into equal blocks, of each of which every rank gets its chunk. A
// piece without elements may have no blocks.
struct PieceCut {
  std::int64_t blocks = 1;
  std::vector<std::int64_t> sizes;  // of the chunks of one block, by turns
  bool operator==(const PieceCut&) const = default;

  // What a rank has of all blocks.
  std::int64_t size_at(std::int64_t rank, std::int64_t ranks) const {
    std::int64_t size = 0;
    for (auto k = static_cast<std::size_t>(rank); k < sizes.size();
         k += static_cast<std::size_t>(ranks)) {
      size += sizes[k];
    }
    return size * blocks;
  }
};

// An axis, and how it cuts each piece that the axes before it leave, the first of them slowest.
struct PieceCuts {
  std::size_t axis = 0;
  std::int64_t ranks = 1;
  std::vector<PieceCut> pieces;
};

// None if the blocks of the piece are not equal. Fewer than listed may use it up.
std::optional<PieceCut> cut_of_piece(const CutAxis& axis, std::int64_t piece, std::int64_t length) {
  const std::int64_t block = ceil_div(length, axis.cut.blocks_of(piece));
  PieceCut cut{block == 0 ? 1 : length / block, {}};
  if (cut.blocks * block != length) return std::nullopt;
  if (const std::vector<std::int64_t>* sizes = axis.cut.sizes_of(piece)) {
    cut.sizes = *sizes;
    return cut;
  }
  for (std::int64_t rank = 0; rank < axis.ranks; ++rank) {
    cut.sizes.push_back(even_chunk(block, axis.ranks, rank).size);
  }
  return cut;
}

// The old dims: all axes that cut them, in order, as cuts of the group's elements.
class OldDims {
 public:
  OldDims(const DTensorSpec& spec, const DimGroup& group) : spec_(spec), group_(group) {}

  std::optional<std::vector<PieceCuts>> cuts() {
    for (std::size_t dim = group_.old_begin; dim < group_.old_end; ++dim) {
      for (Piece& piece : pieces_) piece.length = spec_.shape()[dim];
      std::int64_t pieces_of_dim = 1;
      for (const CutAxis& axis : spec_.dim_cuts()[dim].axes()) {
        if (!cut(dim, axis, pieces_of_dim)) return std::nullopt;
        pieces_of_dim *= axis.ranks;
      }
      for (Piece& piece : pieces_) piece.rows *= piece.length;
    }
    return std::move(cuts_);
  }

 private:
  // What is left of the dims before the present one, and of that dim.
  struct Piece {
    std::int64_t rows = 1;
    std::int64_t length = 1;
  };

  bool cut(std::size_t dim, const CutAxis& axis, std::int64_t pieces_of_dim) {
    const std::int64_t inner = product(spec_.shape(), dim + 1, group_.old_end);
    PieceCuts cuts{axis.axis, axis.ranks, {}};
    std::vector<Piece> left;
    for (std::size_t k = 0; k < pieces_.size(); ++k) {
      const Piece& piece = pieces_[k];
      const std::int64_t piece_of_dim = static_cast<std::int64_t>(k) % pieces_of_dim;
      std::optional<PieceCut> its_cut = cut_of_piece(axis, piece_of_dim, piece.length);
      if (!its_cut) return false;
      for (std::int64_t rank = 0; rank < axis.ranks; ++rank) {
        left.push_back({piece.rows, its_cut->size_at(rank, axis.ranks)});
      }
      for (std::int64_t& size : its_cut->sizes) size *= inner;
      its_cut->blocks *= piece.rows;
      cuts.pieces.push_back(std::move(*its_cut));
    }
    pieces_ = std::move(left);
    cuts_.push_back(std::move(cuts));
    return true;
  }

  const DTensorSpec& spec_;
  const DimGroup& group_;
  std::vector<Piece> pieces_ = {Piece{}};
  std::vector<PieceCuts> cuts_;
};

// The new dims of a group: takes the axes one after the other.
class NewDims {
 public:
  explicit NewDims(Shape sizes) : axes_(sizes.size()), pieces_of_dim_(sizes.size(), 1) {
    pieces_.push_back({sizes, std::vector<std::int64_t>(sizes.size(), 0)});
  }

  // False if no dim can be cut so.
  bool take(const PieceCuts& cuts) { return take(cuts, Blocks::None) || take(cuts, Blocks::Some); }

  const std::vector<CutAxis>& axes(std::size_t dim) const { return axes_[dim]; }

 private:
  // Whether the dim itself is cut in blocks.
  enum class Blocks { None, Some };

  struct Piece {
    Shape sizes;                        // what is left of each dim
    std::vector<std::int64_t> of_dims;  // which of the pieces of each dim it is
  };

  bool take(const PieceCuts& cuts, Blocks blocks) {
    for (std::size_t dim = 0; dim < axes_.size(); ++dim) {
      const std::vector<PieceCut> found = cuts_of_dim(cuts, dim, blocks);
      if (found.empty()) continue;
      cut(dim, cuts, found);
      return true;
    }
    return false;
  }

  // One per piece of the dim; empty if the dim cannot be cut so: chunks of whole rows, alike for
  // all pieces of the other dims.
  std::vector<PieceCut> cuts_of_dim(const PieceCuts& cuts, std::size_t dim, Blocks blocks) const {
    std::vector<std::optional<PieceCut>> found(static_cast<std::size_t>(pieces_of_dim_[dim]));
    for (std::size_t k = 0; k < pieces_.size(); ++k) {
      const Shape& sizes = pieces_[k].sizes;
      const std::int64_t rows = product(sizes, 0, dim);
      const std::int64_t inner = product(sizes, dim + 1, sizes.size());
      if (rows * sizes[dim] * inner == 0) continue;
      PieceCut its_cut = cuts.pieces[k];
      if (its_cut.blocks % rows != 0) return {};
      its_cut.blocks /= rows;
      if (blocks == Blocks::None && its_cut.blocks != 1) return {};
      for (std::int64_t& size : its_cut.sizes) {
        if (size % inner != 0) return {};
        size /= inner;
      }
      auto& of_dim = found[static_cast<std::size_t>(pieces_[k].of_dims[dim])];
      if (of_dim && *of_dim != its_cut) return {};
      of_dim = std::move(its_cut);
    }
    return with_pieces_that_nobody_holds(found, dim, cuts);
  }

  // They are cut evenly.
  std::vector<PieceCut> with_pieces_that_nobody_holds(
      const std::vector<std::optional<PieceCut>>& found, std::size_t dim,
      const PieceCuts& cuts) const {
    std::vector<PieceCut> all(found.size());
    for (const Piece& piece : pieces_) {
      const auto of_dim = static_cast<std::size_t>(piece.of_dims[dim]);
      all[of_dim] = found[of_dim]
                        ? *found[of_dim]
                        : *cut_of_piece({cuts.axis, cuts.ranks, Cut()}, 0, piece.sizes[dim]);
    }
    return all;
  }

  void cut(std::size_t dim, const PieceCuts& cuts, const std::vector<PieceCut>& of_dim) {
    std::vector<std::int64_t> blocks;
    std::vector<std::vector<std::int64_t>> sizes;
    std::size_t most = 0;
    for (const PieceCut& piece : of_dim) {
      blocks.push_back(piece.blocks);
      sizes.push_back(piece.sizes);
      most = std::max(most, piece.sizes.size());
    }
    for (std::vector<std::int64_t>& row : sizes) row.resize(most, 0);  // turns without elements
    axes_[dim].push_back({cuts.axis, cuts.ranks, Cut(std::move(blocks), std::move(sizes))});
    std::vector<Piece> left;
    for (const Piece& piece : pieces_) {
      const PieceCut& its_cut = of_dim[static_cast<std::size_t>(piece.of_dims[dim])];
      for (std::int64_t rank = 0; rank < cuts.ranks; ++rank) {
        left.push_back(piece);
        left.back().sizes[dim] = its_cut.size_at(rank, cuts.ranks);
        left.back().of_dims[dim] = piece.of_dims[dim] * cuts.ranks + rank;
      }
    }
    pieces_ = std::move(left);
    pieces_of_dim_[dim] *= cuts.ranks;
  }

  std::vector<std::vector<CutAxis>> axes_;   // per dim
  std::vector<std::int64_t> pieces_of_dim_;  // per dim
  std::vector<Piece> pieces_;                // the axis taken first slowest
};

}  // namespace

std::optional<DTensorSpec> regrouped(const DTensorSpec& spec, const TensorMeta& meta) {
  if (!spec.is_sharded() || meta.shape() == spec.shape()) return spec.with_meta(meta);
  if (meta.numel() == 0 || meta.numel() != spec.meta().numel()) return std::nullopt;
  ViewDraft draft(spec);
  for (const DimGroup& group : group_dims(spec.shape(), meta.shape())) {
    if (group.old_end - group.old_begin == 1 && group.new_end - group.new_begin == 1) {
      draft.cut(static_cast<std::int64_t>(group.new_begin),
                spec.dim_cuts()[group.old_begin].axes());
      continue;
    }
    const std::optional<std::vector<PieceCuts>> cuts = OldDims(spec, group).cuts();
    if (!cuts) return std::nullopt;
    NewDims dims({meta.shape().begin() + static_cast<std::ptrdiff_t>(group.new_begin),
                  meta.shape().begin() + static_cast<std::ptrdiff_t>(group.new_end)});
    for (const PieceCuts& of_axis : *cuts) {
      if (!dims.take(of_axis)) return std::nullopt;
    }
    for (std::size_t dim = group.new_begin; dim < group.new_end; ++dim) {
      draft.cut(static_cast<std::int64_t>(dim), dims.axes(dim - group.new_begin));
    }
  }
  return draft.finish(meta);
}

}  // namespace tegula::inner
