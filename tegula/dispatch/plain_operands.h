// Plain tensors beside DTensors in an op. Small ones count as replicated: ranks are expected to
// hold the same, and each notes a hash of them, so that a difference is an error at the next
// communication (comm/agreements.h). Of large ones, which need a guard, a sample is noted.
#pragma once

#include "tegula/operators/call.h"

namespace tegula::inner {

void agree_on_plain_operands(const Call& call);

}  // namespace tegula::inner
