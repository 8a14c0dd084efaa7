#include "tegula/dispatch/redistribute_tile.h"

#include "tegula/dispatch/routes.h"

namespace tegula {

at::Tensor redistribute_tile(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                             const DTensorSpec& to, std::optional<at::ScalarType> wire) {
  if (from == to && !wire) return tile;
  return world.part<Routes>().find_or_make(world, from, to, wire).run(tile);
}

TileLater redistribute_tile_later(const World& world, const at::Tensor& tile,
                                  const DTensorSpec& from, const DTensorSpec& to,
                                  std::optional<at::ScalarType> wire) {
  if (from == to && !wire) return TileLater(tile);
  return world.part<Routes>().find_or_make(world, from, to, wire).start(tile);
}

}  // namespace tegula
