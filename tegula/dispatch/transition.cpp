#include "tegula/dispatch/transition.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "tegula/dispatch/carry_out.h"
#include "tegula/dispatch/tile_layout.h"

namespace tegula {

at::Tensor transition(const World& world, const at::Tensor& tile, const DTensorSpec& before,
                      const DTensorSpec& after) {
  const std::optional<Coordinate> coordinate = before.mesh().coordinate_of(world.rank());
  if (!coordinate) return tile;
  check_tile(tile, before, *coordinate);
  const TileStep step = step_at(before, after, *coordinate);
  const at::AutoDispatchBelowADInplaceOrView plain;  // no view of the tile is ever seen outside
  return laid_out(carry_out(world, before.mesh(), tile, step), after, *coordinate, tile);
}

}  // namespace tegula
