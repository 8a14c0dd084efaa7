// Ways from one distribution of a tensor to another, one axis at a time.
#pragma once

#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// The specs to pass through on the way from `from` to `to`: without `from`, ending with `to`; none
// if at most the strides differ. Neighbours differ in the placement of one axis, by a step that
// step_at (tile_step.h) knows: an axis stops cutting a dim only if it is the last to cut it, and
// starts as the last. All carry the strides of `to`. At most two steps per axis.
//
// Where axes are in each other's way, one of them is gathered; no attempt is made to find the way
// of least communication.
// UsageError if the two have not the same mesh, shape and element type.
std::vector<DTensorSpec> waypoints(const DTensorSpec& from, const DTensorSpec& to);

}  // namespace tegula
