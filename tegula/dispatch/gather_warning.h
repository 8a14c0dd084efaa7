// What is said when an operator first takes the universal path.
#pragma once

#include "tegula/operators/call.h"

namespace tegula::inner {

// Warns once per operator and world, on rank 0, if operands of the call are cut or owe reductions.
// Nothing if the call gives numbers to the host: reading is what was asked for.
void warn_of_gather(const Call& call);

}  // namespace tegula::inner
