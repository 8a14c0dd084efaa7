// A way from one distribution to another that needs no search.
#pragma once

#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// The specs to pass through: every axis whose part changes is replicated, then goes where it
// should; the other axes stay. Axes that change alike do so in one step. Without `from`, ending
// with `to`, all with the strides of `to`. Both ends have one mesh, shape and element type and
// differ.
std::vector<DTensorSpec> through_replicas(const DTensorSpec& from, const DTensorSpec& to);

}  // namespace tegula::inner
