// Samples of operators that pick and write elements by index.
#pragma once

#include <vector>

#include "tegula/testing/sample.h"

namespace tegula {

void add_indexing_samples(std::vector<Sample>& samples);
std::vector<Sample> indexing_edge_samples();

}  // namespace tegula
