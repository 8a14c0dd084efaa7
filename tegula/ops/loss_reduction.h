// libtorch's numbers for what becomes of the losses of all elements.
#pragma once

#include <cstdint>

namespace tegula::inner::families {

enum LossReduction : std::int64_t { kNoReduction = 0, kMean = 1, kSum = 2 };

}  // namespace tegula::inner::families
