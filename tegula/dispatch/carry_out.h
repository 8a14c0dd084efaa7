// Carries out steps of tiles (plan/tile_step.h) over the groups along mesh axes. What comes out may
// have any strides and may share memory with what went in. Called by all ranks along the axes of
// the step.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/comm/world.h"
#include "tegula/plan/tile_step.h"

namespace tegula {

at::Tensor carry_out(const World& world, const DeviceMesh& mesh, const at::Tensor& tile,
                     const TileStep& step);

// The same in two halves, for a step that communicates: finish(begin(...).wait(), step). The tile
// must stay as it is in between.
Pending begin(const World& world, const DeviceMesh& mesh, const at::Tensor& tile,
              const TileStep& step);
at::Tensor finish(const at::Tensor& received, const TileStep& step);

}  // namespace tegula
