// Distributed tensors from nothing. Each rank makes its own tile; the whole exists nowhere. Random
// ones draw by global element index (random.h): the same numbers on any mesh.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/mesh/device_mesh.h"
#include "tegula/placement/placement.h"
#include "tegula/spec/tensor_meta.h"

namespace tegula {

// dtype (torch's default dtype unless set) and requires_grad of `options` count.
at::Tensor empty(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                 const at::TensorOptions& options = {});
at::Tensor zeros(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                 const at::TensorOptions& options = {});
at::Tensor ones(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                const at::TensorOptions& options = {});
at::Tensor full(const Shape& shape, const at::Scalar& value, const DeviceMesh& mesh,
                const Placements& placements, const at::TensorOptions& options = {});
// start, start + step, ... below end; int64 if all three are whole and options say no dtype.
at::Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                  const DeviceMesh& mesh, const Placements& placements,
                  const at::TensorOptions& options = {});
at::Tensor rand(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                const at::TensorOptions& options = {});
at::Tensor randn(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
                 const at::TensorOptions& options = {});
// Whole numbers of [low, high); int64 unless options say otherwise.
at::Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const DeviceMesh& mesh,
                   const Placements& placements, const at::TensorOptions& options = {});
at::Tensor eye(std::int64_t rows, std::int64_t columns, const DeviceMesh& mesh,
               const Placements& placements, const at::TensorOptions& options = {});

}  // namespace tegula
