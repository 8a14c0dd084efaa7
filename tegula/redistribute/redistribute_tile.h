// A rank's part in redistributing a tensor over its own mesh.
//
// All ranks of the mesh call these, in the same order. Routes (route.h) are made at the first call
// and remembered with the world.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/comm/world.h"
#include "tegula/redistribute/async_tile.h"
#include "tegula/redistribute/route.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// Route(world, from, to, options).run(tile)
at::Tensor redistribute_tile(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                             const DTensorSpec& to, const RouteOptions& options = {});

// Route(world, from, to, options).start(tile)
AsyncTile redistribute_tile_async(const World& world, const at::Tensor& tile,
                                  const DTensorSpec& from, const DTensorSpec& to,
                                  const RouteOptions& options = {});

}  // namespace tegula::inner
