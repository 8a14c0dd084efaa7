// Tensors cut by rows: as they are written to files and read from them. Each rank then has one run
// of bytes of the whole, whatever the placements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// The same tensor, row-major, with dim 0 cut over all axes of its mesh and nothing owed. Axes that
// cut it already stay, so that a tensor that is cut by rows or replicated is there already. A
// tensor without dims is replicated.
DTensorSpec spec_by_rows(const DTensorSpec& spec);

// The run of rows that a rank reads or writes.
struct Rows {
  at::Tensor local;         // row-major
  std::int64_t offset = 0;  // of its first byte in the whole tensor
  bool is_own = false;      // whether it is the tensor's own memory
};

// What this rank writes of a distributed tensor; none if that is nothing. All ranks of the mesh
// call it; communicates unless the tensor is by rows or replicated.
std::optional<Rows> rows_of(const at::Tensor& tensor);

// Memory for what this rank reads of a distributed tensor whose elements in the file are of this
// type; none if the rank is not in the mesh. Where it can be, it is the tensor's own memory.
std::optional<Rows> rows_for(const at::Tensor& tensor, at::ScalarType type);
// Gives the tensor what was read. All ranks of the mesh call it; communicates as rows_of.
void take_rows(const at::Tensor& tensor, const Rows& rows);

}  // namespace tegula::inner
