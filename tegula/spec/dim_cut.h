// DimCut: how one tensor dim is cut by mesh axes, and so who holds which elements of it.
//
// The axes cut one after the other: the first cuts the dim into one piece per rank along it, the
// second cuts each of those pieces, and so on. A shard is a piece that no further axis cuts; it is
// a list of intervals of the dim, in the order in which the rank stores them (one interval, unless
// an axis cuts in blocks, or by turns).
//
// Law: the intervals of all shards partition [0, size).
//
// Immutable; any thread may use it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tegula/base/coordinate.h"
#include "tegula/placement/cut.h"
#include "tegula/spec/interval.h"

namespace tegula {

// One axis that cuts a dim: its index in the mesh, the number of ranks along it, and how it cuts.
struct CutAxis {
  std::size_t axis = 0;
  std::int64_t ranks = 1;
  Cut cut;
  bool operator==(const CutAxis&) const = default;
};

// A part of an interval that one shard holds: `whole` in the dim, stored from `local_begin` on.
// `shard` counts the shards by the coordinates along axes(), the first axis slowest.
struct Share {
  std::int64_t shard = 0;
  Interval whole;
  std::int64_t local_begin = 0;
  bool operator==(const Share&) const = default;
};

class DimCut {
 public:
  // A dim that no axis cuts.
  explicit DimCut(std::int64_t size);
  // UsageError if given sizes do not add up to the pieces they cut, if a list of blocks or sizes
  // has not one entry per piece, or if a number makes no sense (a negative size, no ranks, more
  // shards than 63 bits count). Cuts are stored in their simplest form: sizes that are the even
  // ones become an even cut, equal entries become one. Cost: O(shards) if a cut is not even.
  DimCut(std::int64_t size, std::vector<CutAxis> axes);

  std::int64_t size() const { return size_; }
  // In the order in which they cut.
  const std::vector<CutAxis>& axes() const { return axes_; }
  bool is_cut() const { return !axes_.empty(); }
  std::int64_t shard_count() const;
  // No shard has more intervals than this. O(blocks listed).
  std::int64_t most_intervals() const;

  // The number of elements that the rank at this mesh coordinate holds. O(axes).
  std::int64_t local_size(const Coordinate& at) const;
  // What it holds, in storage order; neighbours are merged. Never empty: a shard without elements
  // is one empty interval that stands where it would begin. O(axes + intervals).
  std::vector<Interval> intervals(const Coordinate& at) const;
  // Who holds what of an interval, by shard and then by storage order. What of the interval lies
  // outside of the dim does not matter. O(result * axes).
  std::vector<Share> owners(Interval interval) const;
  // The position along axes() of a shard that owners() names.
  std::vector<std::int64_t> position_of(std::int64_t shard) const;

  bool operator==(const DimCut& other) const {
    return size_ == other.size_ && axes_ == other.axes_;
  }

 private:
  struct Level;
  Level level(std::size_t index, std::int64_t piece, std::int64_t length) const;

  std::int64_t size_;
  std::vector<CutAxis> axes_;
  // For ragged cuts: where chunks begin in the piece and in their rank's shard, two lists per row
  // of sizes, so that no look-up is linear in ranks. offsets_[axis index in axes_][2 * row (+ 1)].
  std::vector<std::vector<std::vector<std::int64_t>>> offsets_;
};

// The cuts, one per axis, that give every shard the size listed for it (shards counted as in
// Share). Law: DimCut(sum of sizes, those cuts).local_size(shard) == shard_sizes[shard].
// UsageError if there is not one size per shard, or if a number makes no sense.
std::vector<Cut> ragged_cuts(std::span<const std::int64_t> ranks_per_axis,
                             std::span<const std::int64_t> shard_sizes);

}  // namespace tegula
