// Everything that can be told from the lengths of the pieces is checked first; then each list is
// dropped if it says what is so anyway, and collapsed if all pieces have the same.
#include "tegula/spec/simplest_cut.h"

#include <algorithm>
#include <string>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

std::string describe(const CutAxis& axis) {
  constexpr std::size_t kLongestShown = 200;
  std::string cut = to_string(axis.cut);
  if (cut.size() > kLongestShown) cut = cut.substr(0, kLongestShown) + " ...";
  return "axis " + std::to_string(axis.axis) + " with " + counted(axis.ranks, "rank", "ranks") +
         cut;
}

void check_size(std::int64_t size) {
  if (size >= 0) return;
  throw UsageError("a dim cannot have " + std::to_string(size) + " elements")
      .hint("sizes are 0 or more");
}

void check_ranks(const std::vector<CutAxis>& axes) {
  std::int64_t shards = 1;
  for (const CutAxis& axis : axes) {
    if (axis.ranks < 1) {
      throw UsageError("a dim cannot be cut over an axis of " +
                       counted(axis.ranks, "rank", "ranks"))
          .fact("cut", describe(axis))
          .hint("an axis has at least one rank");
    }
    if (__builtin_mul_overflow(shards, axis.ranks, &shards)) {
      throw UsageError("a dim cannot be cut into more shards than 63 bits count")
          .fact("cut", describe(axis))
          .hint("check the sizes of the mesh");
    }
  }
}

template <class Row>
void check_row_count(const std::vector<Row>& rows, std::size_t pieces, const CutAxis& axis,
                     const char* what) {
  if (rows.size() <= 1 || rows.size() == pieces) return;
  throw UsageError("a cut lists " + std::string(what) + " for " +
                   counted(static_cast<std::int64_t>(rows.size()), "piece", "pieces") +
                   " but the axes before it leave " + std::to_string(pieces))
      .fact("cut", describe(axis))
      .hint("give one entry for all pieces, or one for each");
}

// The sizes of a ragged cut, times its blocks, must add up to each piece they cut.
void check_sums(const CutAxis& axis, const std::vector<std::int64_t>& piece_lengths) {
  for (std::size_t piece = 0; piece < piece_lengths.size(); ++piece) {
    const std::int64_t blocks = axis.cut.blocks_of(static_cast<std::int64_t>(piece));
    const std::vector<std::int64_t>& sizes = *axis.cut.sizes_of(static_cast<std::int64_t>(piece));
    std::int64_t sum = 0;
    bool overflow = false;
    for (std::int64_t size : sizes) overflow |= __builtin_add_overflow(sum, size, &sum);
    overflow |= __builtin_mul_overflow(sum, blocks, &sum);
    if (overflow || sum != piece_lengths[piece]) {
      throw UsageError("the given shard sizes add up to " +
                       (overflow ? "too much" : std::to_string(sum)) + " where " +
                       std::to_string(piece_lengths[piece]) + " elements are cut")
          .fact("cut", describe(axis))
          .hint("the sizes of all ranks, times the blocks, must add up to the size of the piece");
    }
  }
}

template <class Row>
void collapse_equal(std::vector<Row>& rows) {
  if (rows.empty()) return;
  const bool equal =
      std::all_of(rows.begin(), rows.end(), [&](const Row& row) { return row == rows.front(); });
  if (equal) rows.erase(rows.begin() + 1, rows.end());
}

bool sizes_are_even(const CutAxis& axis, const std::vector<std::int64_t>& piece_lengths) {
  for (std::size_t piece = 0; piece < piece_lengths.size(); ++piece) {
    const auto index = static_cast<std::int64_t>(piece);
    const std::int64_t run = piece_lengths[piece] / axis.cut.blocks_of(index);
    for (std::int64_t rank = 0; rank < axis.ranks; ++rank) {
      if ((*axis.cut.sizes_of(index))[static_cast<std::size_t>(rank)] !=
          even_chunk(run, axis.ranks, rank).size) {
        return false;
      }
    }
  }
  return true;
}

// The fewest blocks that mean the same: runs of ceil(length / blocks) may use the dim up early. One
// number for all pieces if there is one that gives all of them their runs.
std::vector<std::int64_t> fewest_blocks(const Cut& cut,
                                        const std::vector<std::int64_t>& piece_lengths) {
  std::vector<std::int64_t> runs;
  std::vector<std::int64_t> fewest;
  for (std::size_t piece = 0; piece < piece_lengths.size(); ++piece) {
    runs.push_back(ceil_div(piece_lengths[piece], cut.blocks_of(static_cast<std::int64_t>(piece))));
    fewest.push_back(runs.back() == 0 ? 1 : ceil_div(piece_lengths[piece], runs.back()));
  }
  const std::int64_t most = *std::max_element(fewest.begin(), fewest.end());
  for (std::size_t piece = 0; piece < piece_lengths.size(); ++piece) {
    if (ceil_div(piece_lengths[piece], most) != runs[piece]) return fewest;
  }
  return {most};
}

}  // namespace

void check_cut_axes(std::int64_t size, const std::vector<CutAxis>& axes) {
  check_size(size);
  check_ranks(axes);
}

Cut simplest_cut(const CutAxis& axis, const std::vector<std::int64_t>& piece_lengths) {
  std::vector<std::int64_t> blocks = axis.cut.blocks();
  std::vector<std::vector<std::int64_t>> sizes = axis.cut.sizes();
  check_row_count(blocks, piece_lengths.size(), axis, "blocks");
  check_row_count(sizes, piece_lengths.size(), axis, "sizes");
  if (!sizes.empty()) {
    if (static_cast<std::int64_t>(sizes.front().size()) != axis.ranks) {
      throw UsageError("a ragged cut lists " +
                       counted(static_cast<std::int64_t>(sizes.front().size()), "size", "sizes") +
                       " for an axis of " + counted(axis.ranks, "rank", "ranks"))
          .fact("cut", describe(axis))
          .hint("give one size per rank along the axis");
    }
    check_sums(axis, piece_lengths);
    if (sizes_are_even(axis, piece_lengths)) sizes.clear();
  }
  // One rank holds every run one after the other: the same as no blocks. Ragged runs of no elements
  // would make blocks meaningless too, but there the sizes are all 0 and so even.
  if (axis.ranks == 1) blocks.clear();
  if (!blocks.empty() && sizes.empty()) blocks = fewest_blocks(axis.cut, piece_lengths);
  collapse_equal(blocks);
  collapse_equal(sizes);
  return Cut(std::move(blocks), std::move(sizes));
}

}  // namespace tegula::inner
