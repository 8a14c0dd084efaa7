// A redistribution over one mesh, made ready once to be run often.
//
//   const Route route(world, from, to);          // plans, makes the groups
//   at::Tensor tile = route.run(my_tile);        // nothing but the collectives and the last copy
//
// What is sent is what the plan of the world's RedistributePlanner
// (world.part<RedistributePlanner>(); its cost model must be the same on all ranks) says at the
// time when the route is made. A rank outside of the mesh gets its tile back. Not differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "tegula/comm/world.h"
#include "tegula/plan/plan.h"
#include "tegula/redistribute/async_tile.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

struct RouteOptions {
  // Tiles are converted to this element type before the first step that communicates, by all ranks,
  // and back at the end; replicas stay equal.
  std::optional<at::ScalarType> wire = std::nullopt;
  // As PlanOptions has it.
  std::optional<std::int64_t> memory_cap = std::nullopt;
};

// A handle; copies mean the same route. Any thread of the rank may use it. Like a Group, it works
// as long as its world lives, and does not keep it alive.
class Route {
 public:
  // All ranks of the mesh make it, since the groups it needs are made here.
  //
  // UsageError: specs that differ in mesh, shape or element type; a wire of another kind of number
  // (whole, real, complex) than the tile; a memory cap that no plan keeps to.
  Route(const World& world, const DTensorSpec& from, const DTensorSpec& to,
        const RouteOptions& options = {});

  // The same on all ranks.
  const Plan& plan() const;
  // Whether the plan has ranks send something; the same on all ranks.
  bool communicates() const;

  // This rank's tile by `to` from its tile by `from`, which may have any strides: the tile itself
  // if the specs are equal, else fresh memory with the strides of tile_stride. All ranks of the
  // mesh call it, in the same order as what else they do. UsageError for a tile that does not fit.
  at::Tensor run(const at::Tensor& tile) const;
  // The same, but what comes last of its communication is only started. The tile must stay as it is
  // until wait() has returned.
  AsyncTile start(const at::Tensor& tile) const;

 private:
  friend class Routes;
  class Ready;
  Route(const World& world, std::shared_ptr<const Plan> plan, std::optional<at::ScalarType> wire);

  std::shared_ptr<const Ready> ready_;
};

}  // namespace tegula::inner
