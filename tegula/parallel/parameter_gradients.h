// The gradients of a list of parameters, whatever meshes these are on, and who has to agree on
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tegula/comm/group.h"

namespace tegula::inner {

// The gradients that are there, reductions that they owe done first (reduce_gradients); that of a
// parameter which is listed twice once.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters);

// All ranks of the meshes that these tensors are on, fibers included; none if all are plain, or
// this rank is in no mesh of them.
std::optional<Group> group_of_meshes(const std::vector<at::Tensor>& tensors);

}  // namespace tegula::inner
