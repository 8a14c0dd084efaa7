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

// How many chunks of given sizes each rank has of a run.
std::int64_t turns_of(const CutAxis& axis) {
  return static_cast<std::int64_t>(axis.cut.sizes().front().size()) / axis.ranks;
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

// For each chunk, how much its rank holds before it; then what each rank holds of all.
std::vector<std::int64_t> held_before(const std::vector<std::int64_t>& sizes, std::size_t ranks) {
  std::vector<std::int64_t> held(sizes.size() + ranks, 0);
  for (std::size_t k = 0; k < sizes.size(); ++k) held[k + ranks] = held[k] + sizes[k];
  return held;
}

}  // namespace

// One axis applied to one piece of `length` elements. The piece is divided into runs of `run`
// elements, the last of which may be shorter; each is cut into chunks by the even rule, one for
// each rank, or by `offsets`, `turns` for each rank: chunk k is that of rank k % ranks.
struct DimCut::Level {
  std::int64_t length;
  std::int64_t ranks;
  std::int64_t run;
  const std::vector<std::int64_t>* offsets;  // where chunks begin; null if even
  const std::vector<std::int64_t>* held;     // by their ranks before; null if even

  std::int64_t turns() const {
    return offsets == nullptr ? 1 : static_cast<std::int64_t>(offsets->size() - 1) / ranks;
  }
  Interval chunk(std::int64_t run_length, std::int64_t index) const {
    if (offsets == nullptr) return even_chunk(run_length, ranks, index);
    const auto i = static_cast<std::size_t>(index);
    return {(*offsets)[i], (*offsets)[i + 1] - (*offsets)[i]};
  }
  // What a chunk's rank has of the chunks before it in the run.
  std::int64_t held_before(std::int64_t index) const {
    return held == nullptr ? 0 : (*held)[static_cast<std::size_t>(index)];
  }
  std::int64_t size_in_run(std::int64_t run_length, std::int64_t rank) const {
    if (held == nullptr) return even_chunk(run_length, ranks, rank).size;
    return (*held)[static_cast<std::size_t>(turns() * ranks + rank)];
  }
  std::int64_t full_runs() const { return run == 0 ? 0 : length / run; }
  std::int64_t rest() const { return run == 0 ? 0 : length % run; }

  std::int64_t size_of(std::int64_t rank) const {
    std::int64_t size = full_runs() * size_in_run(run, rank);
    if (rest() > 0) size += size_in_run(rest(), rank);
    return size;
  }

  // What a rank holds, as positions in the piece.
  std::vector<Interval> parts_of(std::int64_t rank) const {
    std::vector<Interval> parts;
    for (std::int64_t begin = 0; begin < length;) {
      const std::int64_t run_length = std::min(run, length - begin);
      for (std::int64_t turn = 0; turn < turns(); ++turn) {
        const Interval part = chunk(run_length, turn * ranks + rank);
        append_merged(parts, {begin + part.begin, part.size});
      }
      begin += run_length;
    }
    return parts;
  }

  std::int64_t begin_of(std::int64_t rank) const {
    return chunk(std::min(run, length), rank).begin;
  }

  // The chunk that has the element at `in_run` of a run.
  std::int64_t chunk_at(std::int64_t run_length, std::int64_t in_run) const {
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
    for (const auto& row : axes_[index].cut.sizes()) {
      offsets_[index].push_back(running_sums(row));
      offsets_[index].push_back(held_before(row, static_cast<std::size_t>(axes_[index].ranks)));
    }
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
  const std::int64_t run = ceil_div(length, axis.cut.blocks_of(piece));
  const auto& rows = offsets_[index];
  if (rows.empty()) return {length, axis.ranks, run, nullptr, nullptr};
  const std::size_t row = rows.size() == 2 ? 0 : 2 * static_cast<std::size_t>(piece);
  return {length, axis.ranks, run, &rows[row], &rows[row + 1]};
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
    for (const std::int64_t more : {blocks, axis.cut.sizes().empty() ? 1 : turns_of(axis)}) {
      count = more > size_ / count ? size_ : count * more;
      count = std::max<std::int64_t>(count, 1);
    }
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
          const std::int64_t index_in_run = cut.chunk_at(run_length, in_run);
          const std::int64_t rank = index_in_run % cut.ranks;
          const Interval chunk = cut.chunk(run_length, index_in_run);
          const std::int64_t take = std::min(part.whole.size, chunk.end() - in_run);
          const std::int64_t child = piece * cut.ranks + rank;
          Piece& target = next[child];
          target.length = cut.size_of(rank);
          const std::int64_t local = run_index * cut.size_in_run(cut.run, rank) +
                                     cut.held_before(index_in_run) + in_run - chunk.begin;
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
