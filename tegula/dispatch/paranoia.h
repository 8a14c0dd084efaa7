// Paranoid mode, for finding where ranks begin to differ: TEGULA_CHECK=1 in the environment checks
// every op, TEGULA_CHECK=0.01 one in a hundred, the same ones on all ranks.
#pragma once

#include "tegula/dispatch/call.h"

namespace tegula {

// Compares across ranks what should be the same on all of them: replicas of DTensors, and plain
// tensors that count as replicated. UsageError that names op, spec and ranks at the first
// difference. Does nothing unless the mode is on.
void check_replicas(const Call& call);

}  // namespace tegula
