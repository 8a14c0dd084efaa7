// Operands' tiles where work on tiles wants them, and tiles as results.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tegula/operators/call.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {

// Whether the tensor's mesh covers those of all other operands, so that work on its tiles gives the
// call's results.
inline bool is_on_mesh_of(const Call& call, const Payload* tensor) {
  return tensor != nullptr && tensor->spec().mesh() == call.mesh();
}

// This rank's tile of a tensor, brought to a spec of its shape. Plain tensors are the same on all
// ranks; what is on another mesh comes by way of the whole.
at::Tensor tile_at(const at::Tensor& tensor, const DTensorSpec& spec, const World& world);

// The whole tensor, plain.
at::Tensor whole_of(const at::Tensor& tensor);

// What a rank gives as its tile of a result, as a tensor; on a rank outside of the mesh it is not
// looked at.
at::Tensor result_of_tile(const at::Tensor& tile, const DTensorSpec& spec, const World& world);

// The spec with these dims cut as they are, other dims whole and nothing owed; dense.
DTensorSpec cut_along_only(const DTensorSpec& spec, const std::vector<bool>& dims);

// The spec of another tensor with the same dims, each cut by the same axes in the same order. The
// `moved` dims are cut in one run per rank: as they are where that is so and the size is the same,
// else evenly. The others have the same size and are cut as they are.
DTensorSpec cut_alike(const DTensorSpec& spec, const TensorMeta& meta,
                      const std::vector<bool>& moved);

}  // namespace tegula::inner
