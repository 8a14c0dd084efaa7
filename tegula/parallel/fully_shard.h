// Fully sharded: parameters, gradients and optimizer state are cut over the data axis, and a
// parameter is whole only while an op uses it.
//
//   fully_shard(*model, mesh["dp"]);                  // ZeRO-3, FSDP
//   fully_shard(*model, mesh["dp"], zero_2());
//   for (...) {
//     model->loss(shard_batch(batch, mesh)).backward();   // gathers weights, reduce-scatters
//     optimizer.step();                                   // gradients; a step sends nothing
//   }
//
// A parameter lies where its optimizer state does: spec_of(parameter) says that. An op that uses it
// together with activations sees it whole over the axis, forward and backward: autograd keeps the
// shards alone, and backward gathers again what is not there any more. What works on parameters
// alone (optimizers, clipping, averages of weights, initialisation) works on shards. An op's result
// that is computed of such parameters alone (a cast to bfloat16 under autocast, a normalised
// weight) is used in the same way, so what travels then is the cast one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tegula/gradient/gradients.h"
#include "tegula/mesh/device_mesh.h"
#include "tegula/placement/placement.h"

namespace torch::nn {
class Module;
}

namespace tegula {

// Where the three are along the axes of the mesh, one placement per axis.
//   parameters  while they are used: Replicate where they stay gathered between uses, until they
//               are written; as `state` where they are gathered for each use and then let go
//   gradients   Replicate or as `state`: all-reduced or reduce-scattered
//   state       of the optimizer, and of the parameters at rest
struct ShardedRoles {
  Placements parameters;
  Placements gradients;
  Placements state;
};

// Of one axis, cutting dim 0: {R, R, S(0)}, {R, S(0), S(0)}, {S(0), S(0), S(0)}.
ShardedRoles zero_1();
ShardedRoles zero_2();
ShardedRoles zero_3();
// Of two axes: replicas over the first, zero_3 over the second.
ShardedRoles hybrid();

struct FullyShardOptions {
  // How a dim is cut: evenly, or each parameter is owned by one rank, the longest first to the rank
  // that has least.
  enum class Layout : std::uint8_t { Even, Owned };
  Layout layout = Layout::Even;
  // Shards begin at multiples of so many rows; for Layout::Even.
  std::int64_t multiple = 1;
  // Bytes of gathered parameters that are kept because they may be used again soon, and of
  // gradients on their way: the least recently used ones go first. A single one may be larger.
  std::int64_t most_bytes = std::int64_t{64} << 20U;
  // When gradients are reduced over the axes.
  GradientReduction reduction = GradientReduction::Async;
  // Gradients travel in this element type; each reduction adds up in float32 or more.
  std::optional<at::ScalarType> wire = std::nullopt;
  // While one parameter is used, the one that was used after it the last time is gathered already.
  // Worth it where communication does not need the cores that compute.
  enum class Prefetch : std::uint8_t { Off, Next };
  Prefetch prefetch = Prefetch::Off;
};

// Cuts every parameter of the module along the axes of `mesh`, a slice (mesh["dp"]) of the mesh
// that the parameters lie on or are to lie on, as the roles say, in place; buffers are replicated.
// Dims that other axes (tp) cut already are cut further. Parameters without dims, and those of a
// rank's own that the roles cannot cut (too few dims), are replicated. Values are as replicate()
// takes them: the same on all ranks, which is checked, of gradients too; tensors on the meta device
// get tiles without values. Gradient policies for other axes stay. A parameter that stands in
// several places stays one; frozen ones and several element types may mix.
//
// UsageError, before anything is changed: roles that are no such roles or do not fit the mesh; a
// parameter that is cut along the axes already; one that differs between ranks.
//
// For several passes over the same weights (micro-batches, evaluation) a KeepGathered guard
// (payload/guards.h) leaves them gathered in between.
void fully_shard(torch::nn::Module& module, const DeviceMesh& mesh,
                 const ShardedRoles& roles = zero_3(), const FullyShardOptions& options = {});

}  // namespace tegula
