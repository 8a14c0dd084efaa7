// Tensors that overlap themselves: along a dim of stride 0 all elements are one place in memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace tegula::inner {

// One element of each dim that these strides expand, all of the others.
inline at::Tensor one_of_each(at::Tensor tensor, at::IntArrayRef stride) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const bool is_expanded = stride[static_cast<std::size_t>(dim)] == 0 && tensor.size(dim) > 1;
    if (is_expanded) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

// A tensor of equal elements along the dims that these strides expand, with these dims expanded.
inline at::Tensor expanded_as(const at::Tensor& tensor, at::IntArrayRef stride) {
  const at::Tensor one = one_of_each(tensor, stride);
  return one.is_same(tensor) ? tensor : one.expand(tensor.sizes());
}

}  // namespace tegula::inner
