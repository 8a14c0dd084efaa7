// How a view op is carried out, worked out once for tensors that are placed alike.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tegula/payload/payload.h"

namespace tegula::inner {

// A call on a tile; the tile's place among the arguments is left empty.
struct TileCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
};

// A rank's part of a view: the call that makes it of the tile, and what it is.
struct TileView {
  TileCall call;
  int member = -1;  // of the call's results; -1 if it has one
  DTensorSpec spec;
  Payload::Layout layout = Payload::Layout::Regular;
};

// Each rank makes its part as a view of its own tile.
struct ViewPlan {
  struct Result {
    std::size_t call = 0;
    int member = -1;  // of the list that the call gives; -1: it gives one tensor
    DTensorSpec spec;
    Payload::Layout layout = Payload::Layout::Regular;
    std::int64_t offset = 0;  // from where the viewed tensor begins, in elements of the view
    OuterForm form = OuterForm(spec);
  };
  // Of a tile that lies like this, the one result is the same memory in this geometry.
  struct Alias {
    Shape tile_sizes;
    Shape tile_strides;
    Shape sizes;
    Shape strides;
    std::int64_t offset = 0;  // from where the tile begins, in elements
  };
  std::size_t viewed = 0;  // the argument
  std::vector<TileCall> calls;
  std::vector<Result> results;
  bool is_list = false;
  bool keeps_tile = false;  // nothing changes: a tile on its way is not waited for
  std::optional<Alias> alias = std::nullopt;  // instead of a call; none: not that simple
};

// No rank can: the results are links to the tensor (payload.h).
struct LinkPlan {
  struct Result {
    DTensorSpec spec;  // replicated
    std::int64_t offset = 0;
    bool is_conj = false;  // bits of the whole view, that a link does not show itself
    bool is_neg = false;
    std::optional<Row> row = std::nullopt;  // what the result is, if it is that
  };
  std::size_t viewed = 0;
  c10::OperatorHandle op;  // takes as many of the call's arguments as it has
  std::vector<Result> results;
  bool is_list = false;
};

}  // namespace tegula::inner
