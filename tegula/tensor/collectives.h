// Collectives that autograd can follow, on plain tensors: for programs, or the inside of a
// local_map, that show every message.
//
//   const Group tp = world.group(mesh, "tp");
//   at::Tensor h = at::gelu(at::mm(all_gather(x, tp, 0), w1));
//   at::Tensor y = reduce_scatter(at::mm(h, w2), tp, 0);
//
// The convention: the loss is the sum of what the ranks backpropagate. So the gradient of an
// all_reduce is an all_reduce, of an all_gather a reduce_scatter and the other way round, of a
// broadcast a reduction to its root. A loss that all ranks hold alike is backpropagated by one of
// them, or divided by their number. Gradients can be differentiated again.
//
// All members of the group call these in the same order, and all or none backpropagate through
// them. What the calls mean otherwise, and their sizes: comm/group.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/comm/group.h"

namespace tegula {

// Sums and averages have gradients; of other reductions a tensor that requires grad is a
// UsageError.
at::Tensor all_reduce(const at::Tensor& tensor, const Group& group, ReduceOp op = ReduceOp::Sum);
at::Tensor reduce_scatter(const at::Tensor& tensor, const Group& group, std::int64_t dim,
                          ReduceOp op = ReduceOp::Sum, const Group::Sizes& sizes = {});
at::Tensor all_gather(const at::Tensor& tensor, const Group& group, std::int64_t dim,
                      const Group::Sizes& sizes = {});
at::Tensor all_to_all(const at::Tensor& tensor, const Group& group, std::int64_t split_dim,
                      std::int64_t join_dim, const Group::Sizes& split_sizes = {},
                      const Group::Sizes& join_sizes = {});
at::Tensor broadcast(const at::Tensor& tensor, const Group& group, int root);
// All tensors have one shape. Zeros for a rank to which nobody sends.
at::Tensor permute(const at::Tensor& tensor, const Group& group, const std::vector<int>& to);

}  // namespace tegula
