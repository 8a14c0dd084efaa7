// libtorch's words for ours, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/mesh/device_mesh.h"
#include "tegula/spec/tensor_meta.h"

namespace tegula {

// UsageError for element types that have no distributed form (quantized and bit types).
DType dtype_of(at::ScalarType type);
// Whether this libtorch knows the element type; old ones lack some. Undefined comes after the last,
// and has the number of one in newer libtorches.
inline bool libtorch_has(DType dtype) {
  return static_cast<int>(dtype) < static_cast<int>(at::ScalarType::Undefined);
}
[[noreturn]] void refuse_element_type(DType dtype);
// UsageError if it does not.
inline at::ScalarType scalar_type_of(DType dtype) {
  if (!libtorch_has(dtype)) refuse_element_type(dtype);
  return static_cast<at::ScalarType>(dtype);
}

// Where the tiles of a mesh are on this rank: a device of the mesh's type.
at::Device device_of(const DeviceMesh& mesh);
// Where what is not distributed is computed: indices, headers, staging.
at::Device host_device();

// Shape, strides and element type of a plain tensor.
TensorMeta meta_of(const at::Tensor& tensor);

}  // namespace tegula
