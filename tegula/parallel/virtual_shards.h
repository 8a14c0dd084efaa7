// Data parallel training whose bits do not depend on the number of ranks: the batch is cut into a
// fixed number of virtual shards, each is computed by itself on one thread, by whichever rank, and
// their gradients are added up in one fixed tree over the shards' numbers.
//
//   replicate(*model, mesh);
//   for (...) {
//     optimizer.zero_grad();
//     virtual_shards(*model, {words, targets}, 12, [&](const Tensors& samples, std::int64_t) {
//       return model->loss(samples[0], samples[1]);   // a mean; plain tensors, plain parameters
//     });
//     optimizer.step();
//   }
//
// What follows works on replicas and keeps that: optimizers, clip_grad_norm_. It costs more than
// replicate: a kernel call per virtual shard, no overlap with backward, and up to 2 log2(shards)
// gradients per rank on the way instead of one.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tegula {

// The mean loss of some samples, a plain scalar with a history. While it is called, the module's
// parameters and buffers are plain tensors. It must not write buffers (batch statistics) nor
// communicate; random numbers have to come from a generator of its own that is seeded by the number
// of the shard.
using VirtualShardLoss =
    std::function<at::Tensor(const std::vector<at::Tensor>& samples, std::int64_t shard)>;

// Adds the gradient of the mean loss of all samples to those of the module's parameters, and gives
// that loss, plain, in f64. Calls `loss` for each of the `shards` virtual shards that has samples,
// on one of the ranks of the module's mesh: equal parts of the batch in order, as at::tensor_split
// cuts them. The tensors of `batch` are plain and alike on all ranks; dim 0 counts samples. A
// parameter that no shard uses keeps the gradient that it had, if any. The bits of what comes out
// depend on the batch and `shards`, not on the number of ranks. All ranks of the mesh call it.
//
// UsageError, before anything is computed: parameters or buffers that are not DTensors replicated
// over one mesh (see replicate()); a batch whose tensors do not have the same number of samples, or
// none; less than one shard. UsageError, before gradients are changed: a buffer was written; a loss
// that is no plain scalar.
at::Tensor virtual_shards(torch::nn::Module& module, const std::vector<at::Tensor>& batch,
                          std::int64_t shards, const VirtualShardLoss& loss);

namespace inner {

// Numbers of shards, begin to end, whose gradients are added up.
struct ShardRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  auto operator<=>(const ShardRange&) const = default;
};
// Where the tree splits a range of two or more: the first part is the largest power of two.
std::int64_t split_of(const ShardRange& range);
// The shards of one of several ranks.
ShardRange shards_of(std::int64_t rank, std::int64_t ranks, std::int64_t shards);
// The largest subtrees of the tree over all shards that lie in `mine`, in order.
std::vector<ShardRange> subtrees(const ShardRange& all, const ShardRange& mine);

}  // namespace inner
}  // namespace tegula
