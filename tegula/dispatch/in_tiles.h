// Ops that each rank does on its own tile, without communication, because every element of the
// result depends on the same element alone (or on none) and the result is placed as self is:
// copies, tensors like another, fills, random numbers.
#pragma once

#include <optional>
#include <vector>

#include "tegula/dispatch/call.h"

namespace tegula {

// None if the op is none of these, or not for these placements; then nothing has happened.
std::optional<std::vector<c10::IValue>> run_in_tiles(const Call& call);

// A tensor that libtorch asks for from nothing, as BuildDistributed says; none if it is to be
// plain.
std::optional<std::vector<c10::IValue>> build_distributed(const Call& call);

}  // namespace tegula
