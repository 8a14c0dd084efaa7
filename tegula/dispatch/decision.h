// Decision: how one kind of call is carried out, worked out once. A kind of call is an op with the
// same specs, the same dims, sizes and flags, on one world (decisions.h).
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "tegula/dispatch/call.h"
#include "tegula/dispatch/route.h"
#include "tegula/dispatch/views.h"
#include "tegula/propagate/output_sharding.h"

namespace tegula {

// What the op gives on a tile, and what that is a tile of.
struct ResultTile {
  DTensorSpec spec;
  Shape sizes;
  Shape strides;
};

// Rows [begin, end) of a table are here; indices into others are looked up elsewhere.
struct RowsHere {
  std::size_t indices = 0;  // the tensor of the call that holds them
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t extent = 0;  // of the whole table
};

// The op on tiles: operands take their routes, some arguments are replaced, results are wrapped.
struct OnTiles {
  std::vector<std::shared_ptr<const Route>> routes;  // per tensor; null: stays. Empty: all stay
  std::vector<std::pair<std::size_t, c10::IValue>> arguments;
  std::vector<std::optional<ResultTile>> results;  // members of lists counted; none: undefined
  std::optional<RowsHere> rows;
  bool communicates = false;
};

using Decision = std::variant<OnTiles, ViewPlan>;

// How the call is carried out on tiles, but for the results, whose element types the op decides.
struct Draft {
  OnTiles on_tiles;
  std::vector<ResultSharding> results;
};

// None if no rule covers the call.
std::optional<Draft> draft_for(const Call& call);

}  // namespace tegula
