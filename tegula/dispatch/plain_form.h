// An op's in-place or out= form by its plain form: a new result, copied to where it belongs. For
// calls that no rule covers because what is written has to stay placed as it is, although the op
// itself could run where the data is, placed otherwise.
#pragma once

#include "tegula/operators/call.h"

namespace tegula::inner {

// Null if the op has no such form, or if nothing is cut or owed. The recipe gives nothing, and has
// written nothing, where the result has another shape or element type than what is written:
// libtorch would resize or convert.
Recipe by_plain_form(const Call& call);

}  // namespace tegula::inner
