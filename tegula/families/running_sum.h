// The running sum with a gradient that sends totals along a cut dim, where libtorch's sends all
// elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <cstdint>
#include <optional>

namespace tegula::inner::families {

// self.cumsum(dim, dtype), registered above the kernel. Communicates as the kernel does.
at::Tensor running_sum(c10::DispatchKeySet keys, const at::Tensor& self, std::int64_t dim,
                       std::optional<at::ScalarType> type);

}  // namespace tegula::inner::families
