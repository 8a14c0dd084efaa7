// The composition matrix: which settings are run.
#pragma once

#include <vector>

#include "tests/composition/settings.h"

namespace tegula::composition {

// Rows of numbers, row[k] in [0, levels[k]), such that any two columns show every pair of their
// values in some row. Greedy: each row shows as many new pairs as any could; `seed` says which of
// several such.
std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& levels, std::uint64_t seed);

// All pairs and triples of {dp, fsdp at each level of ZeRO, tp, sp, loss}, for each of both nets
// with pairwise rows of everything else. The same list in every process.
std::vector<Settings> composition_matrix();

}  // namespace tegula::composition
