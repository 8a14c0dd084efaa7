// Tiles of operands, brought to where work on tiles wants them.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/operators/call.h"

namespace tegula::inner {

// Whether the tensor's mesh covers those of all other operands, so that work on its tiles gives the
// call's results.
inline bool is_on_mesh_of(const Call& call, const Payload* tensor) {
  return tensor != nullptr && tensor->spec().mesh() == call.mesh();
}

// A tensor's tile, brought to a spec of its shape. Plain tensors are the same on all ranks; what is
// on another mesh comes by way of the whole.
at::Tensor tile_at(const at::Tensor& tensor, const DTensorSpec& spec, const World& world);

// The whole tensor, plain.
at::Tensor whole_of(const at::Tensor& tensor);

}  // namespace tegula::inner
