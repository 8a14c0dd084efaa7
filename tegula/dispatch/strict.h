// What strict mode refuses (guards.h).
#pragma once

#include "tegula/dispatch/decision.h"

namespace tegula {

// UsageError in strict mode if operands would be redistributed with communication.
void check_may_move(const Call& call, const Draft& draft);
// UsageError in strict mode if operands would be gathered.
void check_may_gather(const Call& call);

}  // namespace tegula
