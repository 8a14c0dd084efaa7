// Combines the ranks' contributions element by element, always in the order of the ranks: whoever
// computes it gets the same bits. f16 and bf16 are reduced in f32 and rounded once.
#pragma once

#include <cstdint>
#include <span>

#include "tegula/comm/region.h"
#include "tegula/placement/reduce_op.h"
#include "tegula/spec/dtype.h"

namespace tegula::inner::comm {

// UsageError if the elements have no such reduction: bitwise ones of fractions, min and max of
// complex numbers, avg of whole numbers.
void check_reducible(DType dtype, ReduceOp op);

// to[i] = op(from[0][i], from[1][i], ...). `to` may be one of the sources. Bools count as 0 and 1,
// and stay so: sum is "any", product is "all". NaN wins min and max. Whole numbers wrap around.
void combine(DType dtype, ReduceOp op, std::span<const void* const> from, void* to,
             std::int64_t count, Writing writing = Writing::Cached);

// The same into several places at once.
void combine_into(DType dtype, ReduceOp op, std::span<const void* const> from,
                  std::span<void* const> to, std::int64_t count, Writing writing);

}  // namespace tegula::inner::comm
