// Carries out steps of tiles (plan/tile_step.h). What comes out may have any strides and may share
// memory with what went in.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tegula/comm/world.h"
#include "tegula/plan/tile_step.h"

namespace tegula::inner {

// The group among which the step communicates: along its axis, or, over several axes, along that of
// a mesh which has them as one. None for a step that stays on its rank.
std::optional<Group> group_along(const World& world, const DeviceMesh& mesh, const TileStep& step);

// A step that stays on its rank. InternalError for one that communicates.
at::Tensor carry_out_alone(const at::Tensor& tile, const TileStep& step);

// A step that communicates; InternalError for one that does not. All ranks of the group call it.
at::Tensor carry_out(const Group& group, const at::Tensor& tile, const TileStep& step);
// The same in two halves: finish(begin(...).wait(), step). The tile must stay as it is in between.
Pending begin(const Group& group, const at::Tensor& tile, const TileStep& step);
at::Tensor finish(const at::Tensor& received, const TileStep& step);

}  // namespace tegula::inner
