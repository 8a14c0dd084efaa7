// The idea: a tile is the cross product of intervals, one list per dim, so it is cut and pasted box
// by box. Joining reduces first: tiles that differ only along axes that owe a reduction are parts
// of one tile.
#include "tegula/bridge/tiles.h"

#include <ATen/ATen.h>

#include <functional>
#include <map>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"

namespace tegula {
namespace {

void check_tensor(const at::Tensor& tensor, const Shape& shape, const DTensorSpec& spec,
                  const std::string& what) {
  if (tensor.defined() && tensor.sizes().vec() == shape &&
      tensor.scalar_type() == scalar_type_of(spec.meta().dtype())) {
    return;
  }
  throw UsageError(what + " does not fit its spec")
      .fact("tensor", tensor.defined() ? std::string(c10::toString(tensor.scalar_type())) +
                                             bracketed(tensor.sizes().vec())
                                       : "undefined")
      .fact("wanted", std::string(name_of(spec.meta().dtype())) + bracketed(shape))
      .fact("spec", to_string(spec))
      .hint("check the tensor's shape and element type");
}

// Calls visit(box of the whole, box of the tile) for every box of a slice.
void for_each_box(const TensorSlice& slice,
                  const std::function<void(const Box&, const Box&)>& visit) {
  Box whole(slice.size());
  Box tile(slice.size());
  const std::function<void(std::size_t)> choose = [&](std::size_t dim) {
    if (dim == slice.size()) {
      visit(whole, tile);
      return;
    }
    std::int64_t begin = 0;
    for (const Interval& interval : slice[dim]) {
      whole[dim] = interval;
      tile[dim] = {begin, interval.size};
      begin += interval.size;
      choose(dim + 1);
    }
  };
  choose(0);
}

at::Tensor reduce_two(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return a + b;
    case ReduceOp::Min:
      return at::minimum(a, b);
    case ReduceOp::Max:
      return at::maximum(a, b);
    case ReduceOp::Product:
      return a * b;
    case ReduceOp::Band:
      return at::bitwise_and(a, b);
    case ReduceOp::Bor:
      return at::bitwise_or(a, b);
    case ReduceOp::Bxor:
      return at::bitwise_xor(a, b);
  }
  throw InternalError("a ReduceOp has a value outside of its enum");
}

// Reduces tiles along one axis: coordinates lose their value there (it becomes 0).
std::map<Coordinate, at::Tensor> reduce_axis(const std::map<Coordinate, at::Tensor>& tiles,
                                             std::size_t axis, ReduceOp op, std::int64_t ranks) {
  std::map<Coordinate, at::Tensor> result;
  for (const auto& [coordinate, tile] : tiles) {
    Coordinate key = coordinate;
    key[axis] = 0;
    auto [entry, fresh] = result.try_emplace(key, tile);
    if (!fresh) entry->second = reduce_two(entry->second, tile, op);
  }
  if (op != ReduceOp::Avg) return result;
  for (auto& [coordinate, tile] : result) tile = at::div(tile, ranks).to(tile.scalar_type());
  return result;
}

}  // namespace

at::Tensor view_of(at::Tensor tensor, const Box& box) {
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    tensor = tensor.narrow(static_cast<std::int64_t>(dim), box[dim].begin, box[dim].size);
  }
  return tensor;
}

at::Tensor cut_tile(const at::Tensor& whole, const DTensorSpec& spec,
                    const Coordinate& coordinate) {
  check_tensor(whole, spec.shape(), spec, "the whole tensor");
  at::Tensor tile = at::empty_strided(local_shape(spec, coordinate), local_stride(spec, coordinate),
                                      whole.options());
  for_each_box(slice_at(spec, coordinate), [&](const Box& from, const Box& to) {
    view_of(tile, to).copy_(view_of(whole, from));
  });
  return tile;
}

at::Tensor join_tiles(const std::vector<at::Tensor>& tiles, const DTensorSpec& spec) {
  const DeviceMesh& mesh = spec.mesh();
  if (static_cast<std::int64_t>(tiles.size()) != mesh.size()) {
    throw UsageError("joining needs one tile per rank: " + std::to_string(mesh.size()) + ", not " +
                     std::to_string(tiles.size()))
        .fact("spec", to_string(spec))
        .hint("list them in row-major order of their coordinates");
  }
  std::map<Coordinate, at::Tensor> held;
  for (std::size_t index = 0; index < tiles.size(); ++index) {
    const Coordinate coordinate = mesh.coordinate_at(static_cast<std::int64_t>(index));
    check_tensor(tiles[index], local_shape(spec, coordinate), spec,
                 "tile " + std::to_string(index));
    held.emplace(coordinate, tiles[index]);
  }
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (const std::optional<ReduceOp> op = owed_reduction(spec.placements()[axis])) {
      held = reduce_axis(held, axis, *op, mesh.axes()[axis].size);
    }
  }
  at::Tensor whole = at::empty_strided(spec.shape(), spec.meta().stride(), tiles.front().options());
  for (const auto& [place, tile] : held) {
    for_each_box(slice_at(spec, place), [&](const Box& to, const Box& from) {
      view_of(whole, to).copy_(view_of(tile, from));
    });
  }
  return whole;
}

}  // namespace tegula
