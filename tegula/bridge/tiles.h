// Tiles of plain tensors: what each rank holds, cut out and put together again without any
// communication. This is the definition of a distributed tensor that tests compare with, and the
// local half of distributing one.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tegula/spec/slices.h"

namespace tegula {

// The box of a tensor; shares its memory.
at::Tensor view_of(at::Tensor tensor, const Box& box);

// The rank's tile of a whole tensor that it has in full: a fresh tensor with the strides that
// local_stride gives. Axes that owe a reduction do not cut; every rank gets the whole there.
// UsageError if the tensor's shape or element type is not the spec's.
at::Tensor cut_tile(const at::Tensor& whole, const DTensorSpec& spec, const Coordinate& coordinate);

// The whole tensor from the tiles of all ranks of a fiber, in row-major order of their coordinates;
// owed reductions are done. Law: join_tiles(all cut_tile(x)) == x if no reduction is owed.
// UsageError if there is not one tile per rank, or one has not the shape or element type that it
// should.
at::Tensor join_tiles(const std::vector<at::Tensor>& tiles, const DTensorSpec& spec);

}  // namespace tegula
