// One step of a redistribution: one mesh axis changes, or several in the same way.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/comm/world.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// This rank's tile by `after` from its tile by `before`, which may have any strides. Fresh memory,
// strides as tile_stride gives for `after`. Not differentiable.
//
// plan/tile_step.h says which steps there are and what each one sends. All ranks along the axes
// that change call it; an axis of one rank sends nothing. A rank outside of the mesh gets its tile
// back. UsageError as step_at, and for a tile that does not fit.
at::Tensor transition(const World& world, const at::Tensor& tile, const DTensorSpec& before,
                      const DTensorSpec& after);

}  // namespace tegula
