// Checks of how axes cut a dim, and the simplest form of a cut.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/spec/dim_cut.h"

namespace tegula::inner {

// UsageError: a negative size, an axis without ranks, more shards than 63 bits count.
void check_cut_axes(std::int64_t size, const std::vector<CutAxis>& axes);

// The cut of an axis that meets pieces of these lengths, in its simplest form: sizes that are the
// even ones are left out, equal entries are one, blocks that the length uses up early are dropped,
// turns that follow each other are one, equal turns are blocks.
// Law: it gives every rank the same elements in the same order.
// UsageError: sizes that do not add up to their piece, not equally many for each rank, or lists of
// blocks or sizes with neither one entry nor one per piece. O(pieces * ranks + sizes).
Cut simplest_cut(const CutAxis& axis, const std::vector<std::int64_t>& piece_lengths);

}  // namespace tegula::inner
