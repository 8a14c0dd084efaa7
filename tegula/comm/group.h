// Ranks that talk: a group, and the collectives among its members.
//
//   Group tp = world.group({0, 1});
//   at::Tensor sum = tp.all_reduce(partial, ReduceOp::Sum);
//   Pending rows = tp.all_gather_async(shard, 0);      // overlaps with what follows
//   ...
//   at::Tensor whole = rows.wait();
//
// Every member makes the same calls on a group in the same order (sends and recvs aside), so one
// thread of a rank at a time makes them, or each on a lane of its own (lane.h); tensors
// agree in dtype and, where nothing else is said, in shape. Tensors are on the CPU (in an imagined
// world on any device, meta included) and need not be contiguous; results are new, contiguous and
// on the tensor's device. "Rank" means a member's index in the group.
//
// Reductions run in the order of the ranks and give the same bits on all of them; f16 and bf16 are
// reduced in f32. NaN wins min and max. bool counts as 0 and 1 and stays bool: sum is "any".
//
// Errors: UsageError if a call cannot be right on its own; nothing was sent then, but it counts as
// a call: with the shm engine, members that make it throw CommError. So it is if this rank has no
// memory or thread for the call. CommError if ranks disagree, one died, left or threw an error
// where others did not (world.h), or one did not come before the timeout (five minutes unless set);
// with the shm engine all members throw it, and each later call throws it again at once, until the
// world recovers (World::recover). When ranks disagree or one does not come, one of them also
// writes the last calls of every rank to the standard error, or to the file that TEGULA_RECORDER
// names ("off": nowhere). In a child that the rank forked every call is a UsageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tegula/placement/reduce_op.h"

namespace c10d {
class Backend;
}

namespace tegula {

namespace inner::comm {
struct GroupState;
struct PendingState;
}  // namespace inner::comm

// The result of a call that may be under way. Copies mean the same call. Dropping it does not end
// the call.
class Pending {
 public:
  // The result; undefined for a call that has none. Throws what the call met. May be repeated.
  at::Tensor wait() const;
  bool is_done() const;

 private:
  friend class Group;
  explicit Pending(std::shared_ptr<inner::comm::PendingState> state) : state_(std::move(state)) {}
  std::shared_ptr<inner::comm::PendingState> state_;
};

// The same of a call on a list of tensors.
class PendingList {
 public:
  // The results, one per tensor, in the order of the list.
  std::vector<at::Tensor> wait() const;
  bool is_done() const;

 private:
  friend class Group;
  explicit PendingList(std::shared_ptr<inner::comm::PendingState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<inner::comm::PendingState> state_;
};

// A tensor of a list, the dim along which it is joined or cut, and per-rank sizes along that dim;
// empty: all alike.
struct TensorAlong {
  at::Tensor tensor;
  std::int64_t dim = 0;
  std::vector<std::int64_t> sizes = {};
};

// A handle; copies mean the same group. It works as long as its world lives.
class Group {
 public:
  const std::string& name() const;
  // World ranks of the members, in the group's order.
  const std::vector<int>& ranks() const;
  int size() const;
  // My place among the members.
  int index() const;
  // "shm", "gloo", "mpi", "nccl", "fake"
  std::string engine() const;
  // For code that speaks c10d; null for the fake engine.
  c10::intrusive_ptr<c10d::Backend> backend() const;
  void set_timeout(std::chrono::milliseconds timeout) const;
  // Breaks the group: pending and later calls of all members throw `reason`.
  void abort(const std::string& reason) const;

  // Per-rank sizes along a dim; empty: all alike.
  using Sizes = std::vector<std::int64_t>;

  at::Tensor all_reduce(const at::Tensor& tensor, ReduceOp op) const;
  // In place.
  void all_reduce_(const at::Tensor& tensor, ReduceOp op) const;

  // The members' tensors, joined along `dim` in the order of the ranks. `sizes[r]` is what rank r
  // has along it.
  at::Tensor all_gather(const at::Tensor& tensor, std::int64_t dim, const Sizes& sizes = {}) const;

  // My part along `dim` of the reduction of all members' tensors. `sizes[r]` is what rank r gets;
  // empty: equal parts.
  at::Tensor reduce_scatter(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                            const Sizes& sizes = {}) const;

  // Cuts the tensor along `split_dim`, gives part r to rank r, and joins what it gets from all
  // along `join_dim`. `split_sizes[r]` is what rank r gets of split_dim; `join_sizes[r]` is what
  // rank r brings along join_dim (if the dims are the same: what rank r sends me).
  at::Tensor all_to_all(const at::Tensor& tensor, std::int64_t split_dim, std::int64_t join_dim,
                        const Sizes& split_sizes = {}, const Sizes& join_sizes = {}) const;

  // The root's tensor; the others' say shape and dtype.
  at::Tensor broadcast(const at::Tensor& tensor, int root) const;
  void broadcast_(const at::Tensor& tensor, int root) const;

  // Fills `part` with this rank's part along `dim` of the root's tensor; `whole` is looked at on
  // the root only.
  void scatter(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim, int root,
               const Sizes& sizes = {}) const;
  // On the root the members' tensors, joined along `dim`; undefined elsewhere.
  at::Tensor gather(const at::Tensor& tensor, std::int64_t dim, int root,
                    const Sizes& sizes = {}) const;

  // Rank r sends its tensor to rank `to[r]`, -1: to nobody. No two may send to one. Returns what
  // came, of shape `shape` (empty: mine); undefined if nothing did.
  at::Tensor permute(const at::Tensor& tensor, const std::vector<int>& to,
                     const std::optional<std::vector<std::int64_t>>& shape = std::nullopt) const;

  // One call for a list of tensors, of any shapes and dtypes each: it costs what a call on one
  // tensor of that size costs, and gives the bits that single calls give. The lists of the members
  // agree as their tensors would have to in single calls. An empty list is a call, too.
  std::vector<at::Tensor> all_reduce_coalesced(const std::vector<at::Tensor>& tensors,
                                               ReduceOp op) const;
  // In place. UsageError if two of the tensors share memory.
  void all_reduce_coalesced_(const std::vector<at::Tensor>& tensors, ReduceOp op) const;
  std::vector<at::Tensor> all_gather_coalesced(const std::vector<TensorAlong>& tensors) const;
  std::vector<at::Tensor> reduce_scatter_coalesced(const std::vector<TensorAlong>& tensors,
                                                   ReduceOp op) const;

  // Messages between two members arrive in order. A send may wait for its recv.
  void send(const at::Tensor& tensor, int to, int tag = 0) const;
  // Into `tensor`.
  void recv(const at::Tensor& tensor, int from, int tag = 0) const;
  // Messages that carry their shape: the receiver need not know it, nor the dtype. Such a send goes
  // with such a recv. CommError if what comes cannot be true; nothing is allocated for it then.
  void send_with_shape(const at::Tensor& tensor, int to, int tag = 0) const;
  at::Tensor recv_with_shape(int from, int tag = 0) const;

  void barrier() const;

  // The same, without waiting: the tensors passed must stay as they are until the call is done.
  Pending all_reduce_async(const at::Tensor& tensor, ReduceOp op) const;
  // In place: gives `tensor` when done.
  Pending all_reduce_async_(const at::Tensor& tensor, ReduceOp op) const;
  Pending all_gather_async(const at::Tensor& tensor, std::int64_t dim,
                           const Sizes& sizes = {}) const;
  Pending reduce_scatter_async(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                               const Sizes& sizes = {}) const;
  Pending all_to_all_async(const at::Tensor& tensor, std::int64_t split_dim, std::int64_t join_dim,
                           const Sizes& split_sizes = {}, const Sizes& join_sizes = {}) const;
  Pending broadcast_async(const at::Tensor& tensor, int root) const;
  // Gives `part` when done.
  Pending scatter_async(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim, int root,
                        const Sizes& sizes = {}) const;
  Pending gather_async(const at::Tensor& tensor, std::int64_t dim, int root,
                       const Sizes& sizes = {}) const;
  Pending permute_async(const at::Tensor& tensor, const std::vector<int>& to,
                        const std::optional<std::vector<std::int64_t>>& shape = std::nullopt) const;
  PendingList all_reduce_coalesced_async(const std::vector<at::Tensor>& tensors, ReduceOp op) const;
  // In place: gives `tensors` when done. UsageError if two of them share memory.
  PendingList all_reduce_coalesced_async_(const std::vector<at::Tensor>& tensors,
                                          ReduceOp op) const;
  PendingList all_gather_coalesced_async(const std::vector<TensorAlong>& tensors) const;
  PendingList reduce_scatter_coalesced_async(const std::vector<TensorAlong>& tensors,
                                             ReduceOp op) const;
  Pending send_async(const at::Tensor& tensor, int to, int tag = 0) const;
  // Gives `tensor` when done.
  Pending recv_async(const at::Tensor& tensor, int from, int tag = 0) const;
  Pending send_with_shape_async(const at::Tensor& tensor, int to, int tag = 0) const;
  Pending recv_with_shape_async(int from, int tag = 0) const;
  Pending barrier_async() const;

  explicit Group(std::shared_ptr<inner::comm::GroupState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<inner::comm::GroupState> state_;
};

}  // namespace tegula
