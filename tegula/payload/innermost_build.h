// Which BuildDistributed (guards.h) stands on this thread, for those that begin and end.
#pragma once

#include "tegula/payload/guards.h"

namespace tegula::inner {

// Null if none does.
const BuildDistributed*& innermost_build();

}  // namespace tegula::inner
