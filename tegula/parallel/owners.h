// Work that needs a whole tensor, done by one rank for each of many.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace tegula::inner {

// A function of a whole tensor, plain, that gives one of the same shape and dtype; `which` is its
// place in the list.
using WholeFunction = std::function<at::Tensor(const at::Tensor& whole, std::size_t which)>;

// A DTensor and what the function costs for it, in any unit.
struct OwnedWork {
  at::Tensor tensor;
  double cost = 1;
};

// This rank's tile of what the function gives for each tensor. Each whole meets in one rank of its
// mesh (one per fiber, whose data are its own), which alone calls the function; the longest are
// given away first, each to the rank that has least to do. One all_to_all of what ranks hold to the
// owners and one back, whatever the meshes and dtypes. All ranks of these meshes' roots call it;
// the tensors owe nothing.
std::vector<at::Tensor> on_owners(const std::vector<OwnedWork>& work,
                                  const WholeFunction& function);

}  // namespace tegula::inner
