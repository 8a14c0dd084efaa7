// Views of DTensors. A view that each rank can make of its own tile aliases it; any other is a Link
// (payload.h). Either way a write through the view lands in the base.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tegula/dispatch/call.h"

namespace tegula {

// The results of an op whose schema says that they are views: one, or the members of the list.
// Nothing is sent.
std::vector<PayloadPtr> views_of(const Call& call);

}  // namespace tegula
