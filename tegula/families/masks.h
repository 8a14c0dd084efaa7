// Rows of a tensor where a mask is true.
#pragma once

#include "tegula/operators/operator_notes.h"

namespace tegula::inner::families {

// self[mask] where ranks have runs of it; null otherwise, or if the one index is no mask.
Recipe index_by_mask(const Call& call);

}  // namespace tegula::inner::families
