// How tiles lie in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/spec/slices.h"

namespace tegula::inner {

// local_stride; dense where the whole tensor has stride 0, since a tile on its way may hold
// different values along an expanded dim.
Shape tile_stride(const DTensorSpec& spec, const Coordinate& coordinate);

// Whether elements lie where these strides say; the stride of a dim of one element does not matter.
bool lies_as(const at::Tensor& tensor, at::IntArrayRef stride);

// A tile of undefined values with these strides, on the mesh's device.
at::Tensor new_tile(const DTensorSpec& spec, const Coordinate& coordinate);

// What a rank outside of the mesh holds: no elements, shape [0].
at::Tensor no_tile(const DTensorSpec& spec);

// A local tensor as the tile at this coordinate: itself if its strides are the tile's, else a copy.
// UsageError if it has not the tile's shape or element type.
at::Tensor in_tile_layout(const at::Tensor& local, const DTensorSpec& spec,
                          const Coordinate& coordinate);

// UsageError unless the tensor has the shape and element type of the tile at this coordinate.
void check_tile(const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& coordinate);

}  // namespace tegula::inner
