// A rank's part in redistributing a tensor over its own mesh.
//
// All ranks of the mesh call these, in the same order. Routes (route.h) are made at the first call
// and remembered with the world.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tegula/comm/world.h"
#include "tegula/dispatch/tile_later.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// Route(world, from, to, wire).run(tile)
at::Tensor redistribute_tile(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                             const DTensorSpec& to,
                             std::optional<at::ScalarType> wire = std::nullopt);

// Route(world, from, to, wire).start(tile)
TileLater redistribute_tile_later(const World& world, const at::Tensor& tile,
                                  const DTensorSpec& from, const DTensorSpec& to,
                                  std::optional<at::ScalarType> wire = std::nullopt);

}  // namespace tegula
