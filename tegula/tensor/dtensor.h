// The distributed tensor. It is a plain at::Tensor with the whole tensor's sizes, strides and
// dtype; this rank's tile and the spec ride along. libtorch's functions, autograd, modules and
// optimizers take it as it is.
//
//   at::Tensor w = distribute_tensor(weight, mesh, {Replicate(), Shard(0)});
//   at::Tensor y = at::linear(x, w).relu();     // plain libtorch
//   y.sum().backward();                         // w.grad() is distributed as w is
//   at::Tensor whole = full_tensor(w.grad());
//
// Meshes come from World::mesh; one made by hand belongs to no world and is refused. Functions that
// communicate are called by all ranks of the mesh, in the same order; a rank outside of the mesh
// may call them too, takes no part, and gets a tensor of the same spec with an empty local. A slice
// of a mesh is a family of fibers, and each of them is such a mesh of its own: its ranks talk among
// themselves, and what it holds may differ from what another fiber holds, until it meets a tensor
// on a mesh that covers several fibers, where it counts as the same in all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

bool is_dtensor(const at::Tensor& tensor);
// The rest of these four: UsageError for a plain tensor.
DTensorSpec spec_of(const at::Tensor& tensor);
Placements placements_of(const at::Tensor& tensor);
DeviceMesh mesh_of(const at::Tensor& tensor);
World world_of(const at::Tensor& tensor);

struct DistributeOptions {
  // Whose data counts: a place in the mesh, as mesh.ranks() counts them. The others only say shape
  // and dtype. On a slice of a mesh each fiber takes the data of its own rank at that place.
  // std::nullopt: every rank has the same data, and nothing is sent.
  std::optional<std::int64_t> source = 0;
  // Which axes cut a dim first; empty: the order of the mesh.
  ShardOrder order = {};
};
// Every rank has the same data, and nothing is sent:
//
//   distribute_tensor(x, mesh, {Shard(0)}, kSameOnAllRanks)
inline const DistributeOptions kSameOnAllRanks{.source = std::nullopt, .order = {}};

// A plain tensor, distributed. A leaf that requires grad gives a leaf that requires grad. One on
// the meta device, on all ranks, becomes tiles whose values are not set, for the caller to fill;
// nothing is sent.
// UsageError: a DTensor (use redistribute), a tensor with a history (use from_local), placements
// that do not fit, a source that is no place in the mesh.
at::Tensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                             const Placements& placements, const DistributeOptions& options = {});

// A batch that every rank has alike, cut by rows (dim 0) over the data axis and replicated over the
// others, as distribute_tensor does with kSameOnAllRanks: nothing is sent. The data axis is `axis`;
// unless it is named, the one called "dp", or the only one that the mesh has. UsageError if there
// is no such axis, or no rows.
at::Tensor shard_batch(const at::Tensor& batch, const DeviceMesh& mesh, std::string_view axis = {});

struct FromLocalOptions {
  // The whole tensor's shape and strides; empty: found out by exchanging the tiles' sizes.
  std::optional<Shape> shape;
  std::optional<Shape> stride;
  ShardOrder order = {};
  // Sends the tiles' sizes around and names the ranks that disagree. Off: each rank only looks at
  // its own tile, nothing is sent, and `shape` must be given unless the placements cut evenly; all
  // tiles require grad or none does, and one that does not lie in memory as `stride` (row-major
  // unless given) says is copied.
  bool check = true;
  // How the gradient that reaches the local is distributed; empty: as the tensor is, with owed
  // reductions done.
  std::optional<Placements> grad_placements;
};

// The tiles that the ranks hold, as one tensor; shards may have any sizes. Differentiable: the
// local gets its tile of the gradient. Shares memory with `local`, unless elements of that share
// memory (an expanded dim). The whole's dims lie in memory in the order in which those of all tiles
// do; row-major if they differ.
// UsageError that names ranks: tiles that differ in dims or dtype, tiles that require grad on some
// ranks only, replicas or uncut dims of different sizes, placements that differ.
at::Tensor from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                      const FromLocalOptions& options = {});

// This rank's tile; an owed reduction stays owed. Shares memory and version with the tensor.
// Differentiable: the gradients of the locals form a tensor placed as `grad_placements`, empty: as
// this one, with owed reductions done.
at::Tensor to_local(const at::Tensor& tensor,
                    const std::optional<Placements>& grad_placements = std::nullopt);

// The whole tensor, plain, on every rank of the mesh. Differentiable as to_local is.
at::Tensor full_tensor(const at::Tensor& tensor,
                       const std::optional<Placements>& grad_placements = std::nullopt);

struct RedistributeOptions {
  ShardOrder order = {};
  // Return at once; the result's local is waited for when it is first used.
  bool async_op = false;
  // Sent in this dtype and converted back.
  std::optional<at::ScalarType> wire = std::nullopt;
  // No step may have more bytes per rank in its two tiles together, the one before and the one
  // after; slower steps are taken where they keep to it. Not for the gradient on its way back.
  std::optional<std::int64_t> memory_cap = std::nullopt;
};
inline const RedistributeOptions kAsync{.async_op = true};

// The same tensor placed otherwise, on its own mesh or on another one of the same world (then all
// ranks of either call it). Differentiable: the gradient comes back placed as `tensor` is, with
// owed reductions done. UsageError: placements that do not fit, a mesh of another world, a memory
// cap that no way keeps to (names the least that one does).
at::Tensor redistribute(const at::Tensor& tensor, const Placements& placements,
                        const RedistributeOptions& options = {});
at::Tensor redistribute(const at::Tensor& tensor, const DeviceMesh& mesh,
                        const Placements& placements, const RedistributeOptions& options = {});

using LocalFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct LocalMapOptions {
  // Where the inputs are brought first, one per DTensor among them; empty: they stay.
  std::vector<Placements> in_placements = {};
  // How the gradients of the inputs' locals are placed; empty: as the inputs, but that those of
  // replicas are added up.
  std::vector<Placements> in_grad_placements = {};
};

// Calls `function` with the locals of the DTensors among `inputs` (others pass as they are) and
// makes the results, in order, DTensors placed as `out_placements` says. Not for ranks outside of
// the mesh, which cannot know the results' shapes: UsageError there. Inside, the loss is the sum of
// what the ranks backpropagate (collectives.h): the gradient of a result that they hold alike comes
// to one of them.
std::vector<at::Tensor> local_map(const LocalFunction& function,
                                  const std::vector<at::Tensor>& inputs,
                                  const std::vector<Placements>& out_placements,
                                  const LocalMapOptions& options = {});

// True values with a last line that is the spec; what is large is summarised. Communicates, so all
// ranks call it, not only the one that prints.
std::string to_string(const at::Tensor& tensor);

}  // namespace tegula
