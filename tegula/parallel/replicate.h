// Data parallel: every rank along an axis has the whole model and some of the samples.
//
//   replicate(*model, mesh["dp"]);
//   for (...) {
//     at::Tensor loss = model->loss(shard_batch(batch, mesh));   // or from_local of my samples
//     loss.backward();                                           // gradients are reduced meanwhile
//     optimizer.step();
//   }
//
// A loss that is a mean is that of all samples, however many each rank has, and none at all is
// fine: the batch is one tensor, cut unevenly.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "tegula/gradient/gradients.h"
#include "tegula/mesh/device_mesh.h"
#include "tegula/payload/gradient_buckets.h"

namespace torch::nn {
class Module;
}

namespace tegula {

struct ReplicateOptions {
  // When gradients are reduced over the axis.
  GradientReduction reduction = GradientReduction::Async;
  // Gradients travel in this element type; replicas stay equal.
  std::optional<at::ScalarType> wire = std::nullopt;
  // Where the reduction is async: gradients of one element type that are ready go in one call, of
  // at most so many bytes that travel, unless one gradient alone has more. 0: one call for each.
  // A bucket is started in backward when it is full, the last one when the pass ends. Buckets under
  // way take no more than 16 MB; then the oldest is waited for.
  //
  // Gradients may be read in the pass, by hooks on tensors say. One that is in a bucket which has
  // not been started starts it: so all ranks read it there, or none. If only some do, all throw a
  // CommError, and so they do if gradients differ between ranks in order, number or shape.
  std::int64_t bucket_bytes = kBucketBytes;
  // What is done with a full bucket, instead of an all-reduce: compression, say. Gradients that
  // travel in the wire's type come in that. Not called along an axis of one rank, where nothing is
  // owed, with create_graph, nor by reduce_gradients.
  BucketHook hook = nullptr;

  // So much that what a call costs beside its bytes does not count, and so little that most of a
  // pass overlaps with it.
  static constexpr std::int64_t kBucketBytes = std::int64_t{4} << 20;
};

// Every parameter and buffer becomes a DTensor that is replicated along the one axis of `mesh` (and
// along the other axes of its root, unless it is placed there already); a parameter that stands in
// several places stays one. What is plain has the same values on all ranks of the root, which is
// checked first, by hashes, in two small collectives. Gradients are reduced over the axis as the
// options say; policies for other axes stay.
//
// UsageError, before anything is changed: a tensor that differs between ranks (its name, and the
// ranks), one that is cut along the axis or on another mesh, a mesh of several axes, a bucket of
// less than no bytes, a hook where the reduction is not async. All ranks say the same options.
void replicate(torch::nn::Module& module, const DeviceMesh& mesh,
               const ReplicateOptions& options = {});

// While it stands, backward passes leave gradients owed over the axis of `mesh`; the first pass
// after that pays for all of them:
//
//   for (std::size_t k = 0; k < parts.size(); ++k) {
//     std::optional<GradientPolicyGuard> guard;
//     if (k + 1 < parts.size()) guard.emplace(no_sync(mesh["dp"]));
//     ...
//   }
GradientPolicy no_sync(const DeviceMesh& mesh);

}  // namespace tegula
