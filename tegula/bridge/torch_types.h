// libtorch's words for ours, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/spec/tensor_meta.h"

namespace tegula {

// UsageError for element types that have no distributed form (quantized and bit types).
DType dtype_of(at::ScalarType type);
// UsageError if this libtorch does not know the element type.
at::ScalarType scalar_type_of(DType dtype);

// Shape, strides and element type of a plain tensor.
TensorMeta meta_of(const at::Tensor& tensor);

}  // namespace tegula
