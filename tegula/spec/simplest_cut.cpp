// Everything that can be told from the lengths of the pieces is checked first; then turns are made
// as few as possible, each list is dropped if it says what is so anyway, and collapsed if all
// pieces have the same.
#include "tegula/spec/simplest_cut.h"

#include <algorithm>
#include <numeric>
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

std::int64_t size_count(const CutAxis& axis) {
  return static_cast<std::int64_t>(axis.cut.sizes().front().size());
}

void check_size_count(const CutAxis& axis) {
  if (size_count(axis) % axis.ranks == 0) return;
  throw UsageError("a ragged cut lists " + counted(size_count(axis), "size", "sizes") +
                   " for an axis of " + counted(axis.ranks, "rank", "ranks"))
      .fact("cut", describe(axis))
      .hint("give one size per rank along the axis, or several, by turns");
}

bool has_turns(const CutAxis& axis) { return size_count(axis) > axis.ranks; }

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

using Turn = std::vector<std::int64_t>;  // one size per rank

// A turn begins only where a rank follows that does not come after the one before it: so turns
// without elements are dropped, and turns that follow each other are one.

std::vector<Turn> fewest_turns(const std::vector<std::int64_t>& sizes, std::size_t ranks) {
  std::vector<Turn> turns;
  std::size_t last = ranks;  // the last rank that has elements in the last turn
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k] == 0) continue;
    const std::size_t rank = k % ranks;
    if (turns.empty() || rank < last) turns.emplace_back(ranks, 0);
    turns.back()[rank] += sizes[k];
    last = rank;
  }
  if (turns.empty()) turns.emplace_back(ranks, 0);
  return turns;
}

std::int64_t length_of(const Turn& turn) {
  return std::accumulate(turn.begin(), turn.end(), std::int64_t{0});
}

bool is_even(const Turn& turn) {
  const auto ranks = static_cast<std::int64_t>(turn.size());
  const std::int64_t length = length_of(turn);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (turn[static_cast<std::size_t>(rank)] != even_chunk(length, ranks, rank).size) return false;
  }
  return true;
}

// Whether blocks alone say it: runs of ceil(length / turns), the last may be shorter, all even.
bool are_even_blocks(const std::vector<Turn>& turns) {
  std::int64_t left = 0;
  for (const Turn& turn : turns) left += length_of(turn);
  const std::int64_t run = ceil_div(left, static_cast<std::int64_t>(turns.size()));
  for (const Turn& turn : turns) {
    if (length_of(turn) != std::min(run, left) || !is_even(turn)) return false;
    left -= length_of(turn);
  }
  return true;
}

bool are_equal(const std::vector<Turn>& turns) {
  return std::all_of(turns.begin(), turns.end(),
                     [&](const Turn& turn) { return turn == turns.front(); });
}

// The same cut with as few turns as there can be, as blocks if that says it.
Cut with_fewest_turns(const CutAxis& axis, std::size_t pieces) {
  const auto ranks = static_cast<std::size_t>(axis.ranks);
  std::vector<std::vector<Turn>> by_row;
  std::size_t most = 1;
  for (const auto& row : axis.cut.sizes()) {
    by_row.push_back(fewest_turns(row, ranks));
    most = std::max(most, by_row.back().size());
  }
  const bool in_blocks = std::all_of(by_row.begin(), by_row.end(), are_equal);
  bool in_even_blocks = true;  // a shorter last run can only be that of one block
  for (std::size_t piece = 0; piece < pieces && in_even_blocks; ++piece) {
    const std::vector<Turn>& turns = by_row[by_row.size() == 1 ? 0 : piece];
    const bool is_one = axis.cut.blocks_of(static_cast<std::int64_t>(piece)) == 1;
    in_even_blocks = are_even_blocks(turns) && (is_one || are_equal(turns));
  }
  std::vector<std::int64_t> blocks = axis.cut.blocks();
  std::vector<std::vector<std::int64_t>> sizes;
  if (in_even_blocks || in_blocks) {
    const std::size_t entries =
        by_row.size() == 1 ? std::max<std::size_t>(blocks.size(), 1) : pieces;
    std::vector<std::int64_t> multiplied;
    for (std::size_t piece = 0; piece < entries; ++piece) {
      const std::vector<Turn>& turns = by_row[by_row.size() == 1 ? 0 : piece];
      multiplied.push_back(axis.cut.blocks_of(static_cast<std::int64_t>(piece)) *
                           static_cast<std::int64_t>(turns.size()));
    }
    blocks = std::move(multiplied);
    if (in_even_blocks) return Cut(std::move(blocks), {});
    for (const std::vector<Turn>& turns : by_row) sizes.push_back(turns.front());
    return Cut(std::move(blocks), std::move(sizes));
  }
  for (std::vector<Turn>& turns : by_row) {
    turns.resize(most, Turn(ranks, 0));
    std::vector<std::int64_t>& row = sizes.emplace_back();
    for (const Turn& turn : turns) row.insert(row.end(), turn.begin(), turn.end());
  }
  return Cut(std::move(blocks), std::move(sizes));
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

Cut simplest_cut(const CutAxis& given, const std::vector<std::int64_t>& piece_lengths) {
  check_row_count(given.cut.blocks(), piece_lengths.size(), given, "blocks");
  check_row_count(given.cut.sizes(), piece_lengths.size(), given, "sizes");
  CutAxis axis = given;
  if (!given.cut.sizes().empty()) {
    check_size_count(given);
    check_sums(given, piece_lengths);
    if (has_turns(given)) axis.cut = with_fewest_turns(given, piece_lengths.size());
  }
  std::vector<std::int64_t> blocks = axis.cut.blocks();
  std::vector<std::vector<std::int64_t>> sizes = axis.cut.sizes();
  if (!sizes.empty() && !has_turns(axis) && sizes_are_even(axis, piece_lengths)) sizes.clear();
  // One rank holds every run one after the other: the same as no blocks. Ragged runs of no elements
  // would make blocks meaningless too, but there the sizes are all 0 and so even.
  if (axis.ranks == 1) blocks.clear();
  if (!blocks.empty() && sizes.empty()) blocks = fewest_blocks(axis.cut, piece_lengths);
  collapse_equal(blocks);
  collapse_equal(sizes);
  return Cut(std::move(blocks), std::move(sizes));
}

}  // namespace tegula::inner
