// What a view op is asked when each rank is to make its part of its own tile.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tegula/operators/call.h"
#include "tegula/operators/view_plan.h"
#include "tegula/spec/views.h"

namespace tegula::inner {

// A view that a rank is to make of its own tile, where some dim of the tensor is cut.
struct ViewOfTile {
  const Payload& self;  // what is viewed
  const Coordinate& at;
  const TensorMeta& meta;  // of the whole view
  const Call& call;
  int member = -1;  // of a list of results

  const c10::IValue& argument(std::size_t index) const { return call.arguments()[index]; }
  // A dim counted from the front; `more` dims than the tensor has count.
  std::int64_t wrapped(std::int64_t dim, std::int64_t more = 0) const {
    const std::int64_t dims = self.spec().ndim() + more;
    return dim < 0 ? dim + dims : dim;
  }
  bool is_cut(std::int64_t dim) const {
    return self.spec().dim_cuts()[static_cast<std::size_t>(dim)].is_cut();
  }
  using Dims = std::vector<std::optional<std::int64_t>>;  // where each dim goes; none: it goes away
  Dims same_dims() const {
    Dims dims;
    for (std::int64_t dim = 0; dim < self.spec().ndim(); ++dim) dims.push_back(dim);
    return dims;
  }
  TileCall same_call() const { return {call.op(), call.arguments()}; }
  // A call on the tile, its dims going where the whole's go.
  std::optional<TileView> moved(const Dims& to, TileCall tile_call, int its_member = -1) const {
    std::optional<DTensorSpec> spec = with_dims_moved(self.spec(), to, meta);
    if (!spec) return std::nullopt;
    return TileView{std::move(tile_call), its_member, std::move(*spec), self.layout()};
  }
  // ... by the same op.
  std::optional<TileView> moved(const Dims& to) const { return moved(to, same_call(), member); }
};

}  // namespace tegula::inner
