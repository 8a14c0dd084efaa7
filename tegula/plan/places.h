// Orders of elements along a dim, as lists of intervals: which place an element has in one.
//
// A list of intervals that do not overlap stands for its elements, one interval after the other:
// [4:6, 0:2] is the order 4, 5, 0, 1, in which 0 has place 2.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/spec/interval.h"

namespace tegula::inner {

using Intervals = std::vector<Interval>;

std::int64_t count(const Intervals& intervals);

// The places that the wanted elements have in `held`, in the order in which they are wanted;
// neighbours are merged, empty ones left out. InternalError if one is not held.
// O((held + wanted + result) log held).
Intervals places_of(const Intervals& wanted, const Intervals& held);

// The wanted elements that are held, in the order in which they are wanted. Cost as above.
Intervals common(const Intervals& wanted, const Intervals& held);

}  // namespace tegula::inner
