// Rows of a distributed tensor: the elements with one index along a dim that is cut, which only
// some ranks have.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

class Payload;

struct Row {
  std::int64_t dim = 0;
  std::int64_t index = 0;
  bool operator==(const Row&) const = default;
};

// How the ranks that have a row hold it: as the tensor, without the dim. Along axes that cut the
// dim one rank has it; they count as replicated.
DTensorSpec spec_of_row(const DTensorSpec& spec, std::int64_t dim);

// This rank's tile of the row, as spec_of_row says: a view of its tile of the tensor. A rank that
// has not got the row gets zeros that nobody else sees.
at::Tensor tile_of_row(const Payload& base, const Row& row);

// The whole row, plain, in memory of its own. Those who have it send it to the others: a broadcast
// along each axis that cuts the dim, then what gathering the row takes.
at::Tensor read_row(const Payload& base, const Row& row);

// Makes the row equal to this plain whole one. Does not communicate.
void write_row(const Payload& base, const Row& row, const at::Tensor& whole);

}  // namespace tegula::inner
