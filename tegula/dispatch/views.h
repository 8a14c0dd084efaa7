// Views of DTensors. A view that each rank can make of its own tile aliases it; any other is a Link
// (payload.h). Either way a write through the view lands in the base.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tegula/dispatch/call.h"

namespace tegula {

struct ViewResult {
  PayloadPtr payload;
  std::int64_t storage_offset = 0;  // where the whole view would begin in the whole's storage
};

// The results of an op whose schema says that they are views: one, or the members of the list.
// Nothing is sent. UsageError for as_strided of a tensor whose elements are not where its strides
// say.
std::vector<ViewResult> views_of(const Call& call);

}  // namespace tegula
