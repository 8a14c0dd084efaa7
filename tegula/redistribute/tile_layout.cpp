#include "tegula/redistribute/tile_layout.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"

namespace tegula::inner {
namespace {

at::TensorOptions options_of(const DTensorSpec& spec) {
  return at::TensorOptions()
      .dtype(scalar_type_of(spec.meta().dtype()))
      .device(device_of(spec.mesh()));
}

}  // namespace

bool lies_as(const at::Tensor& tensor, at::IntArrayRef stride) {
  if (tensor.strides() == stride || tensor.numel() == 0) return true;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != stride[static_cast<std::size_t>(dim)]) {
      return false;
    }
  }
  return true;
}

Shape tile_stride(const DTensorSpec& spec, const Coordinate& coordinate) {
  const Shape& stride = spec.meta().stride();
  if (std::find(stride.begin(), stride.end(), 0) != stride.end()) {
    return row_major_strides(local_shape(spec, coordinate));
  }
  return local_stride(spec, coordinate);
}

at::Tensor new_tile(const DTensorSpec& spec, const Coordinate& coordinate) {
  return at::empty_strided(local_shape(spec, coordinate), tile_stride(spec, coordinate),
                           options_of(spec));
}

at::Tensor no_tile(const DTensorSpec& spec) { return at::empty({0}, options_of(spec)); }

void check_tile(const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& coordinate) {
  const Shape shape = local_shape(spec, coordinate);
  if (tile.defined() && tile.sizes() == shape &&
      tile.scalar_type() == scalar_type_of(spec.meta().dtype())) {
    return;
  }
  throw UsageError("the tile does not fit its spec")
      .fact("tile", tile.defined() ? std::string(name_of(dtype_of(tile.scalar_type()))) +
                                         bracketed(tile.sizes().vec())
                                   : "undefined")
      .fact("wanted", std::string(name_of(spec.meta().dtype())) + bracketed(shape))
      .fact("spec", to_string(spec))
      .fact("at", bracketed(coordinate))
      .hint("check the tile's shape and element type");
}

at::Tensor in_tile_layout(const at::Tensor& local, const DTensorSpec& spec,
                          const Coordinate& coordinate) {
  check_tile(local, spec, coordinate);
  if (lies_as(local, tile_stride(spec, coordinate))) return local;
  return new_tile(spec, coordinate).copy_(local);
}

}  // namespace tegula::inner
