// Operands' tiles where a family wants them, and tiles as results.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tegula/payload/payload.h"

namespace tegula::inner {

// This rank's tile of a tensor, brought to a spec. Plain tensors are the same on all ranks.
at::Tensor operand_tile(const at::Tensor& tensor, const DTensorSpec& spec, const World& world);

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
