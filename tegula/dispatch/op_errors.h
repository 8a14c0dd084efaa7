// Errors that leave an op on DTensors. Other ranks may not meet them, so each is counted where they
// can see it (comm/recovery.h); and one of libtorch's own gets to say which op it was, and on what.
#pragma once

#include <string>
#include <vector>

#include "tegula/operators/call.h"
#include "tegula/operators/call_key.h"

namespace tegula::inner {

// To be called while the error is handled: in a catch block that throws it on.
void note_op_error(const Call& call);
// The same for a call whose decision is remembered under its key.
void note_op_error(const OperatorEntry& entry, const CallKey& key, const World& world);

}  // namespace tegula::inner
