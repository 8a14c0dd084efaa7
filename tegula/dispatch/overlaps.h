// Operands that share memory. libtorch refuses to write a tensor that lies partly where another
// operand does, and so do we. Decided by the outer tensors' geometry: tiles may overlap on some
// ranks and not on others.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/operators/operator_entry.h"

namespace tegula::inner {

// Whether some of a tensor's elements are the same place in memory: an expanded dim.
bool overlaps_itself(const at::Tensor& tensor);

// UsageError if a DTensor that the op writes and another operand are different views of one tensor
// that have elements in common. As in libtorch, only views without gaps are looked at; tensors in
// lists are not.
void check_overlaps(const OperatorEntry& entry, Arguments arguments);
// The same for one pair.
void check_overlap(const OperatorEntry& entry, const at::Tensor& written, const at::Tensor& read);

}  // namespace tegula::inner
