// A rank's part in redistributing a tensor over its own mesh.
//
// All ranks of the mesh call these, in the same order. What is sent is what the plan of the world's
// RedistributePlanner (world.part<RedistributePlanner>(); its cost model must be the same on all
// ranks) says. A rank outside of the mesh gets its tile back. Not differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>

#include "tegula/comm/world.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// A tile that may be under way. Copies mean the same one. Any thread may use it.
class TileLater {
 public:
  // Here already.
  explicit TileLater(at::Tensor tile);
  // `finish` makes the tile from what the call gives; it runs once, in the first thread that waits.
  TileLater(Pending call, std::function<at::Tensor(const at::Tensor&)> finish);

  // The tile, the same each time. Throws what the call met, each time.
  at::Tensor wait() const;
  // Whether wait() would not wait for other ranks.
  bool is_done() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// This rank's tile by `to` from its tile by `from`, which may have any strides: the tile itself if
// the specs are equal, else fresh memory with the strides of tile_stride. If only strides differ,
// nothing is sent.
//
// `wire`: the tile is converted to this element type before the first step that communicates, by
// all ranks, and back at the end; replicas stay equal.
//
// UsageError: specs that differ in mesh, shape or element type; a tile that does not fit; a wire of
// another kind of number (whole, real, complex) than the tile.
at::Tensor redistribute_tile(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                             const DTensorSpec& to,
                             std::optional<at::ScalarType> wire = std::nullopt);

// The same, but what comes last of its communication is only started. The tile must stay as it is
// until wait() has returned.
TileLater redistribute_tile_later(const World& world, const at::Tensor& tile,
                                  const DTensorSpec& from, const DTensorSpec& to,
                                  std::optional<at::ScalarType> wire = std::nullopt);

}  // namespace tegula
