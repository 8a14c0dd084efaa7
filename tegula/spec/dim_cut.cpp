// The idea: a Level is one axis applied to one piece. It maps between positions in the piece and
// (rank, position in that rank's shard) by arithmetic alone. Everything else walks the levels from
// the first axis to the last.
#include "tegula/spec/dim_cut.h"

#include <algorithm>
#include <limits>
#include <map>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/spec/simplest_cut.h"

namespace tegula {

using namespace inner;

namespace {

// The end of an interval that may reach beyond all numbers.
std::int64_t clipped_end(const Interval& interval) {
  std::int64_t end = 0;
  if (!__builtin_add_overflow(interval.begin, interval.size, &end)) return end;
  using Limits = std::numeric_limits<std::int64_t>;
  return interval.size > 0 ? Limits::max() : Limits::min();
}

void append_merged(std::vector<Interval>& intervals, Interval next) {
  if (next.size == 0) return;
  if (!intervals.empty() && intervals.back().end() == next.begin) {
    intervals.back().size += next.size;
  } else {
    intervals.push_back(next);
  }
}

// Where position `local` of a piece lies in the whole dim; its end, if it is the piece's length.
std::int64_t place_in_whole(const std::vector<Interval>& piece, std::int64_t local) {
  for (const Interval& interval : piece) {
    if (local < interval.size) return interval.begin + local;
    local -= interval.size;
  }
  return piece.back().end();
}

// Parts of a piece, given by positions in it, as intervals of the whole dim. Both ascend, so one
// walk suffices.
std::vector<Interval> map_through(const std::vector<Interval>& piece,
                                  const std::vector<Interval>& parts) {
  std::vector<Interval> result;
  std::size_t index = 0;
  std::int64_t passed = 0;  // elements of the piece before piece[index]
  for (Interval part : parts) {
    while (part.size > 0) {
      while (part.begin >= passed + piece[index].size) passed += piece[index++].size;
      const std::int64_t skip = part.begin - passed;
      const std::int64_t take = std::min(part.size, piece[index].size - skip);
      append_merged(result, {piece[index].begin + skip, take});
      part = {part.begin + take, part.size - take};
    }
  }
  return result;
}

std::int64_t sum_of(const std::vector<std::int64_t>& sizes) {
  std::int64_t sum = 0;
  for (std::int64_t size : sizes) {
    if (!__builtin_add_overflow(sum, size, &sum)) continue;
    throw UsageError("the given shard sizes add up to more than 63 bits count")
        .fact("sizes", bracketed(sizes))
        .hint("check the sizes");
  }
  return sum;
}

std::vector<std::int64_t> running_sums(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> sums{0};
  for (std::int64_t size : sizes) sums.push_back(sums.back() + size);
  return sums;
}

}  // namespace

// One axis applied to one piece of `length` elements. The piece is divided into runs of `run`
// elements, the last of which may be shorter; each is cut by the even rule or by `offsets`.
struct DimCut::Level {
  std::int64_t length;
  std::int64_t ranks;
  std::int64_t run;
  const std::vector<std::int64_t>* offsets;  // null if even

  Interval chunk(std::int64_t run_length, std::int64_t rank) const {
    if (offsets == nullptr) return even_chunk(run_length, ranks, rank);
    const auto i = static_cast<std::size_t>(rank);
    return {(*offsets)[i], (*offsets)[i + 1] - (*offsets)[i]};
  }
  std::int64_t full_runs() const { return run == 0 ? 0 : length / run; }
  std::int64_t rest() const { return run == 0 ? 0 : length % run; }

  std::int64_t size_of(std::int64_t rank) const {
    std::int64_t size = full_runs() * chunk(run, rank).size;
    if (rest() > 0) size += chunk(rest(), rank).size;
    return size;
  }

  // What a rank holds, as positions in the piece.
  std::vector<Interval> parts_of(std::int64_t rank) const {
    std::vector<Interval> parts;
    for (std::int64_t begin = 0; begin < length;) {
      const std::int64_t run_length = std::min(run, length - begin);
      const Interval part = chunk(run_length, rank);
      append_merged(parts, {begin + part.begin, part.size});
      begin += run_length;
    }
    return parts;
  }

  std::int64_t begin_of(std::int64_t rank) const {
    return chunk(std::min(run, length), rank).begin;
  }

  // The rank that holds the element at `in_run` of a run.
  std::int64_t rank_at(std::int64_t run_length, std::int64_t in_run) const {
    if (offsets == nullptr) return in_run / ceil_div(run_length, ranks);
    return std::upper_bound(offsets->begin(), offsets->end(), in_run) - offsets->begin() - 1;
  }
};

DimCut::DimCut(std::int64_t size) : DimCut(size, {}) {}

DimCut::DimCut(std::int64_t size, std::vector<CutAxis> axes)
    : size_(size), axes_(std::move(axes)), offsets_(axes_.size()) {
  check_cut_axes(size, axes_);
  const auto last_special = std::find_if(axes_.rbegin(), axes_.rend(),
                                         [](const CutAxis& axis) { return !axis.cut.is_even(); });
  const auto special = static_cast<std::size_t>(axes_.rend() - last_special);
  std::vector<std::int64_t> piece_lengths{size};
  for (std::size_t index = 0; index < special; ++index) {
    axes_[index].cut = simplest_cut(axes_[index], piece_lengths);
    for (const auto& row : axes_[index].cut.sizes()) offsets_[index].push_back(running_sums(row));
    if (index + 1 == special) break;
    std::vector<std::int64_t> next;
    for (std::size_t piece = 0; piece < piece_lengths.size(); ++piece) {
      const Level cut = level(index, static_cast<std::int64_t>(piece), piece_lengths[piece]);
      for (std::int64_t rank = 0; rank < cut.ranks; ++rank) next.push_back(cut.size_of(rank));
    }
    piece_lengths = std::move(next);
  }
}

DimCut::Level DimCut::level(std::size_t index, std::int64_t piece, std::int64_t length) const {
  const CutAxis& axis = axes_[index];
  const auto& rows = offsets_[index];
  const std::vector<std::int64_t>* offsets = nullptr;
  if (!rows.empty()) offsets = &rows[rows.size() == 1 ? 0 : static_cast<std::size_t>(piece)];
  return {length, axis.ranks, ceil_div(length, axis.cut.blocks_of(piece)), offsets};
}

std::int64_t DimCut::shard_count() const {
  std::int64_t count = 1;
  for (const CutAxis& axis : axes_) count *= axis.ranks;
  return count;
}

std::int64_t DimCut::most_intervals() const {
  std::int64_t count = 1;
  for (const CutAxis& axis : axes_) {
    std::int64_t blocks = 1;
    for (std::int64_t listed : axis.cut.blocks()) blocks = std::max(blocks, listed);
    count = blocks > size_ / count ? size_ : count * blocks;
    count = std::max<std::int64_t>(count, 1);
  }
  return count;
}

std::int64_t DimCut::local_size(const Coordinate& at) const {
  std::int64_t piece = 0;
  std::int64_t length = size_;
  for (std::size_t index = 0; index < axes_.size(); ++index) {
    const Level cut = level(index, piece, length);
    const std::int64_t rank = at[axes_[index].axis];
    length = cut.size_of(rank);
    piece = piece * cut.ranks + rank;
  }
  return length;
}

std::vector<Interval> DimCut::intervals(const Coordinate& at) const {
  std::int64_t piece = 0;
  std::int64_t length = size_;
  std::vector<Interval> held{{0, size_}};
  for (std::size_t index = 0; index < axes_.size(); ++index) {
    const Level cut = level(index, piece, length);
    const std::int64_t rank = at[axes_[index].axis];
    std::vector<Interval> next = map_through(held, cut.parts_of(rank));
    if (next.empty()) next.push_back({place_in_whole(held, cut.begin_of(rank)), 0});
    held = std::move(next);
    length = cut.size_of(rank);
    piece = piece * cut.ranks + rank;
  }
  return held;
}

std::vector<Share> DimCut::owners(Interval interval) const {
  const std::int64_t begin = std::clamp<std::int64_t>(interval.begin, 0, size_);
  const std::int64_t end = std::clamp<std::int64_t>(clipped_end(interval), begin, size_);
  // All parts of the interval, by the piece that holds them after the axes so far.
  struct Piece {
    std::int64_t length = 0;
    std::vector<Share> parts;
  };
  std::map<std::int64_t, Piece> pieces;
  if (end > begin) pieces[0] = {size_, {{0, {begin, end - begin}, begin}}};
  for (std::size_t index = 0; index < axes_.size(); ++index) {
    std::map<std::int64_t, Piece> next;
    for (const auto& [piece, content] : pieces) {
      const Level cut = level(index, piece, content.length);
      for (Share part : content.parts) {
        while (part.whole.size > 0) {
          const std::int64_t run_index = part.local_begin / cut.run;
          const std::int64_t in_run = part.local_begin % cut.run;
          const std::int64_t run_length = std::min(cut.run, cut.length - run_index * cut.run);
          const std::int64_t rank = cut.rank_at(run_length, in_run);
          const Interval chunk = cut.chunk(run_length, rank);
          const std::int64_t take = std::min(part.whole.size, chunk.end() - in_run);
          const std::int64_t child = piece * cut.ranks + rank;
          Piece& target = next[child];
          target.length = cut.size_of(rank);
          const std::int64_t local =
              run_index * cut.chunk(cut.run, rank).size + in_run - chunk.begin;
          target.parts.push_back({child, {part.whole.begin, take}, local});
          part.whole = {part.whole.begin + take, part.whole.size - take};
          part.local_begin += take;
        }
      }
    }
    pieces = std::move(next);
  }
  std::vector<Share> shares;
  for (const auto& [piece, content] : pieces) {
    for (const Share& part : content.parts) {
      const bool continues =
          !shares.empty() && shares.back().shard == part.shard &&
          shares.back().whole.end() == part.whole.begin &&
          shares.back().local_begin + shares.back().whole.size == part.local_begin;
      if (continues) {
        shares.back().whole.size += part.whole.size;
      } else {
        shares.push_back(part);
      }
    }
  }
  return shares;
}

std::vector<std::int64_t> DimCut::position_of(std::int64_t shard) const {
  std::vector<std::int64_t> position(axes_.size());
  for (std::size_t index = axes_.size(); index-- > 0;) {
    position[index] = shard % axes_[index].ranks;
    shard /= axes_[index].ranks;
  }
  return position;
}

std::vector<Cut> ragged_cuts(std::span<const std::int64_t> ranks_per_axis,
                             std::span<const std::int64_t> shard_sizes) {
  std::vector<CutAxis> axes;
  for (std::int64_t ranks : ranks_per_axis) axes.push_back({axes.size(), ranks, {}});
  check_cut_axes(0, axes);
  std::size_t shards = 1;
  for (const CutAxis& axis : axes) shards *= static_cast<std::size_t>(axis.ranks);
  if (shards != shard_sizes.size()) {
    throw UsageError("need one size for each of " + std::to_string(shards) + " shards, got " +
                     std::to_string(shard_sizes.size()))
        .hint("list the sizes by the coordinates of the axes, the first axis slowest");
  }
  std::vector<Cut> cuts(ranks_per_axis.size());
  std::vector<std::int64_t> sizes(shard_sizes.begin(), shard_sizes.end());
  for (std::size_t index = cuts.size(); index-- > 0;) {
    const auto ranks = static_cast<std::size_t>(ranks_per_axis[index]);
    std::vector<std::vector<std::int64_t>> rows;
    std::vector<std::int64_t> sums;
    for (std::size_t begin = 0; begin < sizes.size(); begin += ranks) {
      rows.emplace_back(sizes.begin() + static_cast<std::ptrdiff_t>(begin),
                        sizes.begin() + static_cast<std::ptrdiff_t>(begin + ranks));
      sums.push_back(sum_of(rows.back()));
    }
    cuts[index] = Cut::ragged_per_piece(std::move(rows));
    sizes = std::move(sums);
  }
  return cuts;
}

}  // namespace tegula
