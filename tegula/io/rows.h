// Tensors cut by rows: as they are written to files and read from them. Each rank then has one run
// of bytes of the whole, whatever the placements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "tegula/io/reused_memory.h"
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

// Whether rows_of communicates: not if the tensor is by rows, or replicated, along each axis.
bool rows_travel(const DTensorSpec& spec);

// What this rank writes of a distributed tensor; none if that is nothing. All ranks of the mesh
// call it.
std::optional<Rows> rows_of(const at::Tensor& tensor);

// Where the rows stand that this rank reads of a distributed tensor whose elements in the file are
// of this type; none if the rank is not in the mesh.
struct RowsPlace {
  std::int64_t offset = 0;  // of the first byte in the whole tensor
  Shape shape;
};
std::optional<RowsPlace> rows_place(const at::Tensor& tensor, at::ScalarType type);
// Memory for them: the tensor's own, where it can be.
Rows rows_for(const at::Tensor& tensor, at::ScalarType type, const RowsPlace& place,
              ReusedMemory& memory);
// Gives the tensor what was read. All ranks of the mesh call it; communicates as rows_of.
void take_rows(const at::Tensor& tensor, const Rows& rows);

}  // namespace tegula::inner
