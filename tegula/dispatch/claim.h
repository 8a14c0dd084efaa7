// Claiming operators: from then on they meet the kernel when they meet a DTensor.
#pragma once

#include "tegula/operators/operator_entry.h"

namespace tegula::inner {

// Claims every operator that libtorch knows, and every one that was registered since the last call,
// making its entry in the table, which is the same at every call. Any thread; cheap if there is
// nothing new.
void claim_operators_of(OperatorTable& table);

}  // namespace tegula::inner
