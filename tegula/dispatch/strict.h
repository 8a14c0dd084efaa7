// What strict mode refuses (guards.h).
#pragma once

#include "tegula/dispatch/decision.h"

namespace tegula::inner {

// Whether the call's results are no tensors: reading its operands is what was asked for.
bool gives_numbers(const Call& call);
// UsageError in strict mode if operands would be redistributed with communication.
void check_may_move(const Call& call, const LocalOpDraft& draft);
// UsageError in strict mode if operands would be gathered.
void check_may_gather(const Call& call);
// UsageError in strict mode if an operand is a view without data of its own, which is read by
// gathering what it looks at.
void check_may_look(const Call& call);

}  // namespace tegula::inner
