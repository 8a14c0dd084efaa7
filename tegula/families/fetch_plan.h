// What the families of ops that move elements along a cut dim share: which intervals of a dim each
// rank wants for its tile of the result, and fetching them (redistribute/dim_exchange.h). The
// result is cut by the same axes: alike where the size stays, else evenly.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "tegula/families/operand_tiles.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/operators/operator_notes.h"
#include "tegula/payload/guards.h"
#include "tegula/redistribute/dim_exchange.h"

namespace tegula::inner::families {

// The tensor's payload if it has a tile of its own.
inline const Payload* cut_payload(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->link() && payload->spec().is_sharded() ? payload : nullptr;
}

inline bool is_cut_in(const DTensorSpec& spec, std::int64_t dim) {
  return spec.dim_cuts()[static_cast<std::size_t>(dim)].is_cut();
}

// The first interval that a rank has.
inline Interval run_at(const DTensorSpec& spec, std::int64_t dim, const Coordinate& at) {
  return spec.dim_cuts()[static_cast<std::size_t>(dim)].intervals(at).front();
}

// What every rank wants of a dim for a run of the result.
using WantedFor = std::function<std::vector<Interval>(const Interval& result)>;

// One exchange after the other.
struct FetchPlan {
  DTensorSpec from;
  DTensorSpec to;
  World world;
  bool is_inside;
  std::vector<DimExchange> exchanges = {};

  void add(std::int64_t dim, const WantedFor& wanted) {
    if (!is_inside) return;
    exchanges.emplace_back(world, from, dim,
                           [&](const Coordinate& at) { return wanted(run_at(to, dim, at)); });
  }
  at::Tensor fetch(at::Tensor tile, const at::Scalar& outside) const {
    for (const DimExchange& one : exchanges) tile = one.fetch(tile, outside);
    return tile;
  }
  at::Tensor add_up(at::Tensor given) const {
    for (auto one = exchanges.rbegin(); one != exchanges.rend(); ++one) given = one->add_up(given);
    return given;
  }
  Values result(const at::Tensor& tile) const { return {result_of_tile(tile, to, world)}; }
};

// For a result of this shape. `moved` dims are those along which elements change places.
inline FetchPlan fetch_plan(const Call& call, const DTensorSpec& from, const Shape& shape,
                            const Dims& moved) {
  const Shape& stride = from.meta().stride();
  const TensorMeta meta(shape, dense_strides_like(shape, stride), from.meta().dtype());
  return {from, cut_alike(from, meta, moved), call.world(), call.coordinate().has_value()};
}

// What sends as much as the operand has is not done unasked.
template <MakeRecipe make>
Recipe unless_strict(const Call& call) {
  return StrictMode::is_on() ? nullptr : make(call);
}

}  // namespace tegula::inner::families
