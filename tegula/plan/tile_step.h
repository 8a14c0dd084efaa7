// What one rank does when the placement of one mesh axis changes, or of several in the same way:
// which parts of its tile it takes, what it does with the ranks along these axes, and how it orders
// what it gets. Plain data, made by arithmetic; tegula/dispatch carries it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "tegula/base/coordinate.h"
#include "tegula/placement/reduce_op.h"
#include "tegula/plan/places.h"
#include "tegula/plan/transition.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// Parts of a tensor along a dim, one after the other.
struct Pick {
  std::int64_t dim = 0;
  Intervals parts;
  bool operator==(const Pick&) const = default;
};

// The ways in which a tile moves. `sizes` have one entry per rank of the group.
namespace move {

struct Stay {
  bool operator==(const Stay&) const = default;
};
// Every element becomes `value`, what the reduction leaves alone.
struct Fill {
  int value = 0;
  bool operator==(const Fill&) const = default;
};
// Zeros of `size` along the dim, with the tile's elements at `places`.
struct Pad {
  std::int64_t dim = 0;
  std::int64_t size = 0;
  Intervals places;
  bool operator==(const Pad&) const = default;
};
struct AllReduce {
  ReduceOp op = ReduceOp::Sum;
  bool operator==(const AllReduce&) const = default;
};
struct AllGather {
  std::int64_t dim = 0;
  std::vector<std::int64_t> sizes;
  bool operator==(const AllGather&) const = default;
};
struct ReduceScatter {
  std::int64_t dim = 0;
  ReduceOp op = ReduceOp::Sum;
  std::vector<std::int64_t> sizes;
  bool operator==(const ReduceScatter&) const = default;
};
struct AllToAll {
  std::int64_t split_dim = 0;
  std::int64_t join_dim = 0;
  std::vector<std::int64_t> split_sizes;
  std::vector<std::int64_t> join_sizes;
  bool operator==(const AllToAll&) const = default;
};

}  // namespace move

using TileMove = std::variant<move::Stay, move::Fill, move::Pad, move::AllReduce, move::AllGather,
                              move::ReduceScatter, move::AllToAll>;

struct TileStep {
  // The axes that change; their ranks form one group, counted with the first axis slowest.
  std::vector<std::size_t> axes;
  std::optional<Pick> before;  // none: the tile as it is
  TileMove move;
  std::optional<Pick> after;  // none: the result as it comes
  bool operator==(const TileStep&) const = default;
};

// The same answer on all ranks of the group.
bool communicates(const TileStep& step);

// The axes of more than one rank whose part in the distribution changes, the first slowest: in the
// order in which they cut the dim they leave, else the dim they come to, else in the mesh's. None
// if only axes of one rank change: what these do never matters.
//
// UsageError unless one step leads from one spec to the other. Strides do not matter; mesh, shape
// and element type must be the same; all axes that change leave the same place (all R, all owing
// one kind of reduction, or the last axes that cut one dim) for the same place (likewise).
std::vector<std::size_t> changed_axes(const DTensorSpec& before, const DTensorSpec& after);

// The kind of the step in which these axes change, those that changed_axes gives (see the table in
// transition.h). UsageError for placements between which no one step leads.
StepKind step_kind(const DTensorSpec& before, const DTensorSpec& after,
                   const std::vector<std::size_t>& axes);

// The step from one spec to another for the rank at a coordinate: what its kind says, and
//
//   slice  its own part       owe  its own value or the neutral one; all keep the value of an avg,
//   pad    zeros around            min, max, band, bor
//
// UsageError as changed_axes and step_kind.
// O(ranks of the group * intervals of a shard).
TileStep step_at(const DTensorSpec& before, const DTensorSpec& after, const Coordinate& coordinate);

}  // namespace tegula::inner
