#include "tegula/redistribute/redistribute_tile.h"

#include "tegula/redistribute/routes.h"

namespace tegula::inner {

at::Tensor redistribute_tile(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                             const DTensorSpec& to, const RouteOptions& options) {
  if (from == to && !options.wire) return tile;
  return world.part<Routes>().find_or_make(world, from, to, options).run(tile);
}

AsyncTile redistribute_tile_async(const World& world, const at::Tensor& tile,
                                  const DTensorSpec& from, const DTensorSpec& to,
                                  const RouteOptions& options) {
  if (from == to && !options.wire) return AsyncTile(tile);
  return world.part<Routes>().find_or_make(world, from, to, options).start(tile);
}

}  // namespace tegula::inner
