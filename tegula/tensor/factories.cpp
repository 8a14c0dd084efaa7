// The idea: a tile is made where it lies and filled by what its slice says; a reduction that shall
// be owed is made of the value afterwards.
#include "tegula/tensor/factories.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/world.h"
#include "tegula/families/families.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/payload/local_call.h"
#include "tegula/payload/payload.h"
#include "tegula/random/random_fill.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {

using namespace inner;

namespace {

using Fill = std::function<void(const at::Tensor& tile, const DTensorSpec&, const Coordinate&)>;

at::ScalarType type_in(const at::TensorOptions& options, at::ScalarType otherwise) {
  return options.has_dtype() ? at::typeMetaToScalarType(options.dtype()) : otherwise;
}

at::ScalarType float_type(const at::TensorOptions& options) {
  return type_in(options, at::typeMetaToScalarType(at::get_default_dtype()));
}

// Each rank fills its tile; what is owed is made of the value afterwards.
at::Tensor made(const Shape& shape, at::ScalarType type, const DeviceMesh& mesh,
                const Placements& placements, const at::TensorOptions& options, const Fill& fill) {
  claim_operators();
  const World world = World::of(mesh);
  const DTensorSpec spec(mesh, placements, TensorMeta(shape, dtype_of(type)));
  const DTensorSpec filled = with_reductions_done(spec);
  at::Tensor result;
  {
    const BelowAutograd below;
    at::Tensor tile = no_tile(spec);
    if (const std::optional<Coordinate> at = mesh.coordinate_of(world.rank())) {
      tile = new_tile(filled, *at);
      fill(tile, filled, *at);
      tile = redistribute_tile(world, tile, filled, spec);
    }
    result = outer_tensor(tile, spec, world);
  }
  return result.set_requires_grad(options.requires_grad());
}

at::Tensor drawn(const Shape& shape, at::ScalarType type, const DeviceMesh& mesh,
                 const Placements& placements, const at::TensorOptions& options,
                 const Distribution& distribution) {
  const Draw draw = next_draw(World::of(mesh), mesh);
  return made(shape, type, mesh, placements, options,
              [&](const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& at) {
                fill_random(tile, spec, at, distribution, draw);
              });
}

// Writes f(interval of the whole) into each run that the tile holds along dim 0.
void fill_runs(const at::Tensor& tile, const std::vector<Interval>& intervals,
               const std::function<at::Tensor(const Interval&)>& f) {
  std::int64_t begin = 0;
  for (const Interval& interval : intervals) {
    tile.narrow(0, begin, interval.size).copy_(f(interval));
    begin += interval.size;
  }
}

void fill_diagonal(const at::Tensor& tile, const TensorSlice& slice) {
  tile.zero_();
  std::int64_t row = 0;
  for (const Interval& rows : slice[0]) {
    std::int64_t column = 0;
    for (const Interval& columns : slice[1]) {
      const std::int64_t begin = std::max(rows.begin, columns.begin);
      const std::int64_t end = std::min(rows.end(), columns.end());
      if (begin < end) {
        tile.narrow(0, row + begin - rows.begin, end - begin)
            .narrow(1, column + begin - columns.begin, end - begin)
            .diagonal()
            .fill_(1);
      }
      column += columns.size;
    }
    row += rows.size;
  }
}

}  // namespace

at::Tensor empty(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                 const at::TensorOptions& options) {
  return made(shape, float_type(options), mesh, placements, options,
              [](const at::Tensor&, const DTensorSpec&, const Coordinate&) {});
}

at::Tensor full(const Shape& shape, const at::Scalar& value, const DeviceMesh& mesh,
                const Placements& placements, const at::TensorOptions& options) {
  return made(
      shape, float_type(options), mesh, placements, options,
      [&](const at::Tensor& tile, const DTensorSpec&, const Coordinate&) { tile.fill_(value); });
}

at::Tensor zeros(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                 const at::TensorOptions& options) {
  return full(shape, 0, mesh, placements, options);
}

at::Tensor ones(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                const at::TensorOptions& options) {
  return full(shape, 1, mesh, placements, options);
}

at::Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                  const DeviceMesh& mesh, const Placements& placements,
                  const at::TensorOptions& options) {
  const bool whole = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const at::ScalarType type = whole ? type_in(options, at::kLong) : float_type(options);
  // libtorch says how many there are, and refuses what makes no sense
  const Shape shape =
      at::arange(start, end, step, at::TensorOptions(type).device(at::kMeta)).sizes().vec();
  return made(shape, type, mesh, placements, options,
              [&](const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& at) {
                fill_runs(tile, slice_at(spec, at)[0], [&](const Interval& run) {
                  const at::Tensor index =
                      at::arange(run.begin, run.end(), at::TensorOptions(at::kLong));
                  if (whole) return index * step.toLong() + start.toLong();
                  return index.to(at::kDouble) * step.toDouble() + start.toDouble();
                });
              });
}

at::Tensor rand(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                const at::TensorOptions& options) {
  return drawn(shape, float_type(options), mesh, placements, options, Uniform{});
}

at::Tensor randn(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                 const at::TensorOptions& options) {
  return drawn(shape, float_type(options), mesh, placements, options, Normal{});
}

at::Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const DeviceMesh& mesh,
                   const Placements& placements, const at::TensorOptions& options) {
  return drawn(shape, type_in(options, at::kLong), mesh, placements, options, Integers{low, high});
}

at::Tensor eye(std::int64_t rows, std::int64_t columns, const DeviceMesh& mesh,
               const Placements& placements, const at::TensorOptions& options) {
  return made({rows, columns}, float_type(options), mesh, placements, options,
              [](const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& at) {
                fill_diagonal(tile, slice_at(spec, at));
              });
}

}  // namespace tegula
