// The idea: an even cut, or one in blocks, gives all ranks but one the same or nothing, so pieces
// of one length leave pieces of few lengths. Follow the lengths that occur instead of the pieces.
// Only a cut that says something else for each piece needs all pieces in their order.
#include "tegula/plan/longest_shard.h"

#include <algorithm>
#include <vector>

namespace tegula::inner {
namespace {

using Lengths = std::vector<std::int64_t>;

std::int64_t even_chunk(std::int64_t length, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t chunk = ceil_div(length, ranks);
  if (chunk == 0 || rank >= ceil_div(length, chunk)) return 0;
  return std::min(chunk, length - rank * chunk);
}

// What a rank gets of a run of given sizes, in all of its turns.
std::int64_t sum_of_turns(const std::vector<std::int64_t>& sizes, std::int64_t ranks,
                          std::int64_t rank) {
  std::int64_t sum = 0;
  for (auto k = static_cast<std::size_t>(rank); k < sizes.size();
       k += static_cast<std::size_t>(ranks)) {
    sum += sizes[k];
  }
  return sum;
}

// What a rank gets of a piece.
std::int64_t part(const CutAxis& axis, std::int64_t piece, std::int64_t length, std::int64_t rank) {
  const std::int64_t blocks = axis.cut.blocks_of(piece);
  if (const auto* sizes = axis.cut.sizes_of(piece)) {
    return blocks * sum_of_turns(*sizes, axis.ranks, rank);
  }
  const std::int64_t run = ceil_div(length, blocks);
  if (run == 0) return 0;
  return length / run * even_chunk(run, axis.ranks, rank) +
         even_chunk(length % run, axis.ranks, rank);
}

bool is_given_by_piece(const Cut& cut) { return cut.blocks().size() > 1 || cut.sizes().size() > 1; }

// One length per piece.
Lengths all_parts(const CutAxis& axis, const Lengths& pieces) {
  Lengths parts;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    for (std::int64_t rank = 0; rank < axis.ranks; ++rank) {
      parts.push_back(part(axis, static_cast<std::int64_t>(piece), pieces[piece], rank));
    }
  }
  return parts;
}

// The ranks at which the part of an even chunk can change: the first, the last that gets something,
// and the next, for a full run and for the rest.
Lengths telling_ranks(const CutAxis& axis, std::int64_t length) {
  Lengths ranks{0};
  const std::int64_t run = ceil_div(length, axis.cut.blocks_of(0));
  if (run == 0) return ranks;
  for (std::int64_t cut_length : {run, length % run}) {
    const std::int64_t chunk = ceil_div(cut_length, axis.ranks);
    if (chunk == 0) continue;
    const std::int64_t last = ceil_div(cut_length, chunk) - 1;
    for (std::int64_t rank : {last, last + 1}) {
      if (rank < axis.ranks) ranks.push_back(rank);
    }
  }
  return ranks;
}

// The lengths that occur.
Lengths different_parts(const CutAxis& axis, const Lengths& lengths) {
  Lengths parts;
  if (const auto* sizes = axis.cut.sizes_of(0)) {
    for (std::int64_t rank = 0; rank < axis.ranks; ++rank) {
      parts.push_back(axis.cut.blocks_of(0) * sum_of_turns(*sizes, axis.ranks, rank));
    }
  } else {
    for (std::int64_t length : lengths) {
      for (std::int64_t rank : telling_ranks(axis, length)) {
        parts.push_back(part(axis, 0, length, rank));
      }
    }
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

}  // namespace

std::int64_t longest_shard(const DimCut& cut, std::size_t axes) {
  const auto begin = cut.axes().begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(axes);
  // The first rank's chunk of an even cut is the longest, and the longer the piece, the longer it
  // is.
  std::int64_t length = cut.size();
  auto even = begin;
  for (; even != end && even->cut.is_even(); ++even) length = ceil_div(length, even->ranks);
  if (even == end) return length;
  // Pieces matter one by one up to the last axis that tells them apart; from there on only their
  // lengths do.
  auto by_piece = end;
  while (by_piece != begin && !is_given_by_piece((by_piece - 1)->cut)) --by_piece;
  Lengths lengths{cut.size()};
  for (auto axis = begin; axis != by_piece; ++axis) lengths = all_parts(*axis, lengths);
  for (auto axis = by_piece; axis != end; ++axis) lengths = different_parts(*axis, lengths);
  return *std::max_element(lengths.begin(), lengths.end());
}

std::int64_t longest_shard(const DimCut& cut) { return longest_shard(cut, cut.axes().size()); }

}  // namespace tegula::inner
