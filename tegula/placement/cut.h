// Cut: how one mesh axis divides a piece of a tensor dim among its ranks.
//
// A piece is what the axes that cut the dim earlier leave to one of their coordinates; for the
// first axis it is the whole dim. Three forms, which combine:
//
//   even       chunks of ceil(length / ranks); the last ones may be shorter or empty
//   ragged     chunks of given sizes, e.g. sizes=[3, 1, 4] for three ranks; if there are more,
//              ranks take turns: sizes=[4, 4, 1, 2] gives the first of two ranks 4, then 1
//   in blocks  `blocks` equal runs (of ceil(length / blocks)) are each cut as above, and a rank
//              holds its chunks of every run: what flattening [B, S] leaves when S is cut
//
// A later axis may need another value for each earlier piece: then `blocks` has one entry and
// `sizes` one row per piece, ordered by the coordinates of the earlier axes (the first slowest).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tegula {

class Scanner;

class Cut {
 public:
  Cut() = default;  // even
  static Cut ragged(std::vector<std::int64_t> sizes);
  static Cut ragged_per_piece(std::vector<std::vector<std::int64_t>> sizes);
  static Cut in_blocks(std::int64_t blocks);
  // The general form. `blocks`: empty (one block), one entry, or one per piece; each at least 1.
  // `sizes`: empty (even), one row, or one row per piece; rows of equal length, none negative.
  Cut(std::vector<std::int64_t> blocks, std::vector<std::vector<std::int64_t>> sizes);

  bool is_even() const { return blocks_.empty() && sizes_.empty(); }
  const std::vector<std::int64_t>& blocks() const { return blocks_; }
  const std::vector<std::vector<std::int64_t>>& sizes() const { return sizes_; }

  std::int64_t blocks_of(std::int64_t piece) const;
  // nullptr if even
  const std::vector<std::int64_t>* sizes_of(std::int64_t piece) const;

  bool operator==(const Cut&) const = default;
  std::size_t hash() const;

 private:
  std::vector<std::int64_t> blocks_;
  std::vector<std::vector<std::int64_t>> sizes_;
};

// "" if even, else ", blocks=2", ", sizes=[3, 1, 4]" or both, with lists where pieces differ:
// ", blocks=[2, 1], sizes=[[4, 2], [2, 2]]". This is the tail of a printed Shard.
std::string to_string(const Cut& cut);
Cut parse_cut(Scanner& scan);

}  // namespace tegula
