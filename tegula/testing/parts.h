// Parts of a plain tensor, as the ranks along one axis hold them, and whether parts are right.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tegula/mesh/device_mesh.h"
#include "tegula/placement/placement.h"

namespace tegula {

// One per rank of a mesh with one axis. What is owed is random but for its reduction, which gives
// the tensor. InternalError for a debt that tensors of this element type cannot have.
std::vector<at::Tensor> parts_of(const at::Tensor& whole, const Placement& placement,
                                 const DeviceMesh& axis, at::Generator& random);

// By how much elements of this type may differ after some thousand operations, relatively and
// absolutely; 0 if they are integers.
double rounding_of(at::ScalarType type);

// Why parts placed like this are not those of the tensor; empty if they are.
std::string fault_of(const std::vector<at::Tensor>& parts, const Placement& placement,
                     const at::Tensor& whole, const DeviceMesh& axis, double tolerance);

// Why one tensor is not the other: shape, element type or values. NaNs are alike.
std::string difference_of(const at::Tensor& got, const at::Tensor& want, double tolerance);

}  // namespace tegula
