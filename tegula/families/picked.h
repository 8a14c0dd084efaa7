// One element of each row of a matrix, by index, where the rows' elements may be cut over ranks:
// each rank looks up what it has.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tegula::inner {

// Whether it can be done: this rank is in the mesh, shards are single runs of elements, and the
// table owes nothing. The same on all ranks of the mesh.
bool can_pick_along_rows(const at::Tensor& table);

// table[row, index[row]] for each row, 0 where the index is `ignored`. Owes a sum over axes that
// cut the rows' elements; cut as the rows are.
at::Tensor picked_along_rows(const at::Tensor& table, const at::Tensor& index,
                             std::int64_t ignored);

// Zeros placed as `table`, but values[row] (or the one value) at index[row].
at::Tensor put_along_rows(const at::Tensor& values, const at::Tensor& table,
                          const at::Tensor& index, std::int64_t ignored);

}  // namespace tegula::inner
