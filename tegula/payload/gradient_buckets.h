// Buckets: gradients that are reduced in one call, and what is done with a full one.
//
//   // Gradients travel as bf16, and stay f32 otherwise.
//   BucketHook as_bf16 = [](const GradientBucket& bucket) {
//     const Pending sum =
//         bucket.group.all_reduce_async(bucket.flat.to(at::kBFloat16), ReduceOp::Sum);
//     return [sum, flat = bucket.flat] { flat.copy_(sum.wait()); };
//   };
//   replicate(*model, mesh["dp"], {.hook = as_bf16});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tegula/comm/group.h"

namespace tegula {

// Gradients of one backward pass that owe a sum over one group and travel in one element type, in
// the order in which they became ready.
struct GradientBucket {
  // This rank's gradients one after the other, plain, with one dim: each is its leaf's tile, if the
  // leaf is cut over other axes. For the hook to write to.
  at::Tensor flat;
  // Views of it, in the shapes of the gradients.
  std::vector<at::Tensor> gradients;
  // The leaf of each. A hook that leaves something out may keep that for the next pass.
  std::vector<at::Tensor> leaves;
  // The ranks over which the sum goes.
  Group group;
};

// Called once per bucket on every rank of its group, in the same order, in the thread that runs
// backward. Brings `bucket.flat` to the sum of all ranks, or to what is to stand for it: the same
// bits on all of them. It may do so at once and return null, or start what it takes and return a
// function that ends it: that is called once, on all ranks in the same order, when the result is
// needed, at the latest when the pass ends.
//
// What it throws ends the pass, and other ranks of the group that wait for this one throw a
// CommError (over shm): every leaf has the gradient that it had before.
using BucketHook = std::function<std::function<void()>(const GradientBucket& bucket)>;

namespace inner {

// How the gradients of a leaf are reduced together with those of others.
struct BucketOptions {
  std::int64_t bytes = 0;  // that travel in one call, at most, unless one gradient alone has more
  BucketHook hook;         // null: an all-reduce
};
using BucketOptionsPtr = std::shared_ptr<const BucketOptions>;  // null: each by itself

}  // namespace inner

}  // namespace tegula
