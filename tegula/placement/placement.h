// Placement: what one mesh axis does to a tensor. One per axis of the mesh.
//
//   R                     Replicate: every rank along the axis holds the same
//   S(0)                  Shard: the axis cuts dim 0 (see cut.h for the forms of cutting)
//   S(0, sizes=[3, 1])    ... into shards of given sizes
//   S(0, blocks=2)        ... in two blocks, as flattening an inner dim leaves it
//   P(sum)                Partial: the value is the sum (avg, min, max, product, band, bor, bxor)
//                         of what the ranks hold; a reduction is owed
//   M(1000)               MaskPartial: the value was looked up in a dim of 1000 entries that the
//                         axis cuts; only the rank that owns the entry holds it, the others hold
//                         zeros, and a sum is owed
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tegula/placement/cut.h"
#include "tegula/placement/reduce_op.h"

namespace tegula {

class Replicate {
 public:
  bool operator==(const Replicate&) const = default;
};

class Shard {
 public:
  // A negative dim counts from the end; it is made positive where the tensor is known.
  explicit Shard(std::int64_t dim) : dim_(dim) {}
  Shard(std::int64_t dim, Cut cut);

  std::int64_t dim() const { return dim_; }
  const Cut& cut() const;

  bool operator==(const Shard& other) const {
    return dim_ == other.dim_ && (cut_ == other.cut_ || cut() == other.cut());
  }

 private:
  std::int64_t dim_;
  std::shared_ptr<const Cut> cut_;  // null if even, so that the usual shard is cheap to copy
};

class Partial {
 public:
  explicit Partial(ReduceOp op = ReduceOp::Sum) : op_(op) {}
  ReduceOp op() const { return op_; }
  bool operator==(const Partial&) const = default;

 private:
  ReduceOp op_;
};

class MaskPartial {
 public:
  // `extent`: the whole size of the dim that was looked up in; 0 or more.
  explicit MaskPartial(std::int64_t extent);
  std::int64_t extent() const { return extent_; }
  bool operator==(const MaskPartial&) const = default;

 private:
  std::int64_t extent_;
};

using Placement = std::variant<Replicate, Shard, Partial, MaskPartial>;
using Placements = std::vector<Placement>;

// The alternatives by name, for tables and switches. No switch over it and no visit of a Placement
// has a default: a new kind does not compile until each of them has an answer for it.
enum class PlacementKind : std::uint8_t { Replicate, Shard, Partial, MaskPartial };
PlacementKind kind_of(const Placement& placement);

// Questions that every kind answers.
bool is_replicate(const Placement& placement);
// The Shard in it, or nullptr: what cuts a dim.
const Shard* as_shard(const Placement& placement);
// The reduction that is owed (sum for MaskPartial), if any.
std::optional<ReduceOp> owed_reduction(const Placement& placement);
// Equal, or shards of one dim, however they cut it.
bool same_but_for_cut(const Placement& a, const Placement& b);

std::size_t hash_of(const Placement& placement);
std::string to_string(const Placement& placement);
// "[R, S(0)]"
std::string to_string(const Placements& placements);
std::ostream& operator<<(std::ostream& out, const Placement& placement);

// The reverse of to_string; blanks do not matter, `P` alone is P(sum). UsageError if it is none.
Placement parse_placement(std::string_view text);
Placement parse_placement(Scanner& scan);
// "[R, S(0)]" or "R, S(0)"
Placements parse_placements(std::string_view text);

}  // namespace tegula
