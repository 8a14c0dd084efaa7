// libtorch's words for ours, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/mesh/device_mesh.h"
#include "tegula/spec/tensor_meta.h"

namespace tegula {

// UsageError for element types that have no distributed form (quantized and bit types).
DType dtype_of(at::ScalarType type);
// Whether this libtorch knows the element type; old ones lack some.
bool libtorch_has(DType dtype);
// UsageError if it does not.
at::ScalarType scalar_type_of(DType dtype);

// Where the tiles of a mesh are on this rank: a device of the mesh's type.
at::Device device_of(const DeviceMesh& mesh);
// Where what is not distributed is computed: indices, headers, staging.
at::Device host_device();

// Shape, strides and element type of a plain tensor.
TensorMeta meta_of(const at::Tensor& tensor);

}  // namespace tegula
