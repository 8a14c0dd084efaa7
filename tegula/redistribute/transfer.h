// A rank's part in moving a tensor from one mesh to another of the same world: the same ranks in
// another shape, overlapping ranks, or others altogether.
//
// All ranks of either mesh call these; others may, take no part, and get an empty tile. A slice of
// a mesh is a family of fibers: ranks wait for those only that share a fiber with them, in one mesh
// or the other, for whom these share one with, and so on. plan/deliveries.h says who sends what to
// whom. Not differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tegula/comm/world.h"
#include "tegula/redistribute/route.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// This rank's tile by `to` from its tile by `from`, which is not looked at on ranks outside of the
// mesh of `from`. Fresh memory with the strides of tile_stride; empty of shape [0] on ranks outside
// of the mesh of `to`. On one mesh this is redistribute_tile, and on two that are one mesh with
// axes joined or split (plan/common_mesh.h) the way is planned likewise.
//
// Else, first, what `from` owes is reduced on its own mesh. Then one all_to_all among the ranks of
// both meshes, in which each rank receives every element of its new tile once, but for those it
// has; if all ranks have all they need, none. What `to` owes is made of the value without
// communication.
//
// `options`: as for redistribute_tile; the all_to_all counts as a step with the tiles before and
// after it. UsageError: specs that differ in shape or element type, a tile that does not fit, a
// mesh with ranks that the world does not have, the wire, a memory cap that cannot be kept to.
at::Tensor transfer(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                    const DTensorSpec& to, const RouteOptions& options = {});

// This rank's tile by `to` of a tensor that one rank has; `whole` is not looked at on the others. A
// source in the mesh serves its own fiber, whose ranks call it: the ranks of another fiber name a
// source of theirs. A source outside serves all fibers, and calls it, too.
at::Tensor scatter_from(const World& world, const at::Tensor& whole, std::int64_t source,
                        const DTensorSpec& to);

}  // namespace tegula::inner
