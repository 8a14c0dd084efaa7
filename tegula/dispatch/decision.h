// Decision: how one kind of call is carried out, worked out once. A kind of call is an op with the
// same key (operators/call_key.h) on one world.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "tegula/operators/call.h"
#include "tegula/operators/operator_notes.h"
#include "tegula/operators/view_plan.h"
#include "tegula/propagate/output_sharding.h"
#include "tegula/redistribute/route.h"

namespace tegula::inner {

// What the op gives on a tile, and what that is a tile of.
struct ResultTile {
  DTensorSpec spec;
  Shape sizes;
  Shape strides;
  OuterForm form = OuterForm(spec);
};

// Rows [begin, end) of a table are here; indices into others are looked up elsewhere.
struct RowsHere {
  std::size_t table = 0;    // the argument that is looked up
  std::size_t indices = 0;  // ... by this one
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t extent = 0;  // of the whole table
  Shape result;             // the sizes here of what is found
  Shape found;              // ... but 1 for dims that the indices do not have
};

// By a rule, the op itself on tiles: operands take their routes, some arguments are replaced,
// results are wrapped.
struct LocalOp {
  std::vector<std::shared_ptr<const Route>> routes;  // per tensor; null: stays. Empty: all stay
  std::vector<std::pair<std::size_t, c10::IValue>> arguments;
  std::vector<std::optional<ResultTile>> results;  // members of lists counted; none: undefined
  std::optional<RowsHere> rows;
  // Tensors that are rows of others and are written: ranks that have them write to their tiles.
  std::vector<std::size_t> written_rows = {};
  double share = 1;  // results are multiplied by it
  bool communicates = false;
};

// By the op's family: other ops on DTensors.
struct Decomposition {
  Recipe run;
};

// By the op's family: work on tiles that needs no other rank.
struct TileOp {
  Recipe run;
};

// By the universal path.
struct Universal {};

using Decision = std::variant<LocalOp, ViewPlan, LinkPlan, Decomposition, TileOp, Universal>;

inline bool may_communicate(const Decision& decision) {
  if (const auto* local_op = std::get_if<LocalOp>(&decision)) return local_op->communicates;
  return !std::holds_alternative<ViewPlan>(decision) && !std::holds_alternative<LinkPlan>(decision);
}

// "rule", "view", "link", "decomposition", "tile op", "universal"
std::string_view name_of(const Decision& decision);

// A LocalOp but for the results, whose element types the op decides when it first runs.
struct LocalOpDraft {
  LocalOp local_op;
  std::vector<ResultSharding> results;
};

// None if no rule covers the call.
std::optional<LocalOpDraft> draft_local_op(const Call& call);

}  // namespace tegula::inner
