// Scoped, re-entrant switches of the thread that they stand on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>

#include "tegula/mesh/device_mesh.h"
#include "tegula/placement/placement.h"

namespace tegula {

// While it stands, plain tensors that meet DTensors in an op count as replicated: every rank must
// hold the same. Without it that is so for tensors of one element or at most 4 KiB that the op only
// reads (constants, masks, indices, initial states), and a UsageError for others.
//
// Ranks that hold different values throw at their next communication: surely if the tensor is that
// small; else only if one of 64 elements that are looked at differs (TEGULA_CHECK looks at all).
class ImplicitReplication {
 public:
  ImplicitReplication();
  ~ImplicitReplication();
  ImplicitReplication(const ImplicitReplication&) = delete;
  ImplicitReplication& operator=(const ImplicitReplication&) = delete;

  // Whether one stands on this thread, or a backward pass runs on it.
  static bool is_on();
};

// While it stands, an op that would move data unasked is a UsageError that names the op and the
// plan: operands that would be redistributed by communication, or gathered because no rule covers
// the op. What is asked for is not concerned: redistribute, full_tensor, item, and gradients on
// their way to where their leaf is; nor is what an op has to exchange to give its result at all
// (the total of a softmax along a dim that is cut). TEGULA_STRICT=1 in the environment does the
// same everywhere.
class StrictMode {
 public:
  StrictMode();
  ~StrictMode();
  StrictMode(const StrictMode&) = delete;
  StrictMode& operator=(const StrictMode&) = delete;

  static bool is_on();
};

// While it stands, parameters that are gathered for an op (parallel/fully_shard.h) stay gathered,
// whatever their size, until they are written or, once it has gone, until others need the room.
class KeepGathered {
 public:
  KeepGathered();
  ~KeepGathered();
  KeepGathered(const KeepGathered&) = delete;
  KeepGathered& operator=(const KeepGathered&) = delete;

  static bool is_on();
};

namespace inner {

// Of a plain tensor: whether it counts as replicated without a guard.
bool is_small_plain(const at::Tensor& tensor);

// While it stands, strict mode does not count: for what the library does on purpose.
class OnPurpose {
 public:
  OnPurpose();
  ~OnPurpose();
  OnPurpose(const OnPurpose&) = delete;
  OnPurpose& operator=(const OnPurpose&) = delete;
};

}  // namespace inner

// While it stands, floating-point tensors with at least one dim that libtorch makes from nothing
// (empty, zeros, ones, full, rand, randn) are DTensors, so that a module can be built in pieces:
//
//   BuildDistributed guard(mesh, [](at::IntArrayRef) { return Placements{Shard(0)}; });
//   torch::nn::Linear model(4096, 4096);        // no rank ever holds the whole weight
class BuildDistributed {
 public:
  using PlacementsFor = std::function<Placements(at::IntArrayRef shape)>;
  BuildDistributed(const DeviceMesh& mesh, PlacementsFor placements);
  ~BuildDistributed();
  BuildDistributed(const BuildDistributed&) = delete;
  BuildDistributed& operator=(const BuildDistributed&) = delete;

  const DeviceMesh& mesh() const { return mesh_; }
  Placements placements_for(at::IntArrayRef shape) const { return placements_(shape); }
  // The innermost one that stands on this thread; null if none does.
  static const BuildDistributed* current();

 private:
  DeviceMesh mesh_;
  PlacementsFor placements_;
  const BuildDistributed* outer_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

}  // namespace tegula
