// Neighbours along a cut dim, for programs that compute on tiles: ghost cells around a tile, and
// rows that go from rank to rank. All differentiable.
//
//   at::Tensor u = distribute_tensor(field, mesh, {Shard(0), Shard(1)});
//   at::Tensor g = halo(u, {0, 1}, {{1, 1}, {1, 1}}, Boundary::Zeros);   // plain, of this rank
//   at::Tensor next = g.slice(0, 2) + g.slice(0, 0, -2) + ...;           // of its own cells
//   u = from_local(next, mesh, placements_of(u));
//
// All ranks of the mesh or group call these, in the same order, and all backpropagate through what
// they get, or none does: gradients travel the way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tegula/comm/group.h"
#include "tegula/plan/boundary.h"

namespace tegula {

// Ghost cells before and after a tile; 0 or more.
struct HaloWidth {
  std::int64_t before = 0;
  std::int64_t after = 0;
  bool operator==(const HaloWidth&) const = default;
};

// This rank's tile with ghost cells around it along these dims, one width per dim; corners
// included. A plain tensor in memory of its own: tiles that overlap are no DTensor. Beyond the
// ends of the whole tensor the boundary says what is there. Widths may exceed what neighbours hold,
// and an empty shard gets its ghost cells, too: along the dim the result has the tile's size and
// both widths, except that Boundary::Clipped leaves out what lies beyond.
//
// Cost: per dim one all_to_all among the ranks along the axes that cut it, with what this rank
// lacks; nothing for a dim that is not cut. A reduction that x owes is done first. The gradient of
// x is placed as x is: a cell's owner adds up the gradients of all of its copies.
//
// UsageError: a plain tensor, dims that do not exist or repeat, not one width per dim or a negative
// one, a dim cut in blocks, widths that the boundary cannot fill (Reflect: as wide as the dim;
// Periodic and Nearest: a dim without elements), a rank outside of the mesh.
at::Tensor halo(const at::Tensor& x, const std::vector<std::int64_t>& dims,
                const std::vector<HaloWidth>& widths, Boundary boundary);

// What came from the ranks of a group.
struct Arrived {
  at::Tensor rows;                   // those of rank 0 first, as it listed them
  std::vector<std::int64_t> counts;  // how many came from each rank
};

// Sends rows (entries along dim 0) of a plain tensor to other ranks of a group: those that
// send_lists[r] (int64, one dim; undefined: none) names go to rank r, as often as it is listed.
// Receivers need not know how many come. Ranks' rows agree in dtype and in all dims but the first.
// Cost: an all_to_all of one number per rank, then one of the rows. Gradients of rows that went to
// several ranks are added up.
//
// UsageError: a DTensor or a tensor without dims, not one list per rank, a list that is no list of
// row numbers. It is this rank's alone: the others wait for it.
Arrived exchange(const at::Tensor& rows, const Group& group,
                 const std::vector<at::Tensor>& send_lists);
// The same for rows of this rank's tile of a DTensor, among the ranks along the axes that cut its
// dim 0. UsageError also: a plain tensor, a dim 0 that no axis cuts.
Arrived exchange(const at::Tensor& x, const std::vector<at::Tensor>& send_lists);

}  // namespace tegula
