// A collective ready to run: what to send from where, what to put where. Made from tensors and dims
// in the caller's thread; run there or on the group's worker.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <span>
#include <vector>

#include "tegula/comm/call.h"
#include "tegula/comm/engine.h"
#include "tegula/comm/group.h"
#include "tegula/comm/region.h"

namespace tegula::inner::comm {

class Buffers;

// `input` and `result` keep the memory of the regions alive. A `target` is the tensor that the
// caller wants filled; the result is copied there if it had to be made elsewhere.
struct PreparedCall {
  Call call;
  at::Tensor input;
  at::Tensor result;
  at::Tensor target;
  c10::SmallVector<Region, 4> from;
  c10::SmallVector<Region, 4> to;

  // The target, else the result; undefined if there is none.
  at::Tensor run(Engine& engine) const;
  // The same, once the call is carried out.
  at::Tensor finish() const;

  // Of the regions.
  std::vector<at::Tensor> memory() const { return {input, result}; }

 private:
  void carry_out(Engine& engine) const;
};

// Calls of one kind, carried out as one.
struct CoalescedCall {
  Call call;
  std::vector<PreparedCall> parts;

  std::vector<at::Tensor> run(Engine& engine) const;

 private:
  void carry_out(Engine& engine) const;
};

// What preparing a call needs to know of its group.
struct Party {
  int size;
  int index;
  Buffers& buffers;
  const Engine& engine;
};

using Sizes = std::vector<std::int64_t>;

// Whether the sizes, none of them negative, add up to `total`.
bool make_up(std::span<const std::int64_t> sizes, std::int64_t total);

// Each checks its arguments (UsageError) and allocates the result; see Group for their meaning.
PreparedCall prepare_all_reduce(const Party& party, const at::Tensor& tensor, ReduceOp op);
PreparedCall prepare_all_reduce_in_place(const Party& party, const at::Tensor& tensor, ReduceOp op);
PreparedCall prepare_all_gather(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                                const Sizes& sizes);
PreparedCall prepare_reduce_scatter(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                                    ReduceOp op, const Sizes& sizes);
PreparedCall prepare_all_to_all(const Party& party, const at::Tensor& tensor,
                                std::int64_t split_dim, std::int64_t join_dim,
                                const Sizes& split_sizes, const Sizes& join_sizes);
PreparedCall prepare_broadcast(const Party& party, const at::Tensor& tensor, int root);
PreparedCall prepare_scatter(const Party& party, const at::Tensor& part, const at::Tensor& whole,
                             std::int64_t dim, int root, const Sizes& sizes);
PreparedCall prepare_gather(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                            int root, const Sizes& sizes);
PreparedCall prepare_permute(const Party& party, const at::Tensor& tensor,
                             const std::vector<int>& to, const std::optional<Sizes>& shape);
PreparedCall prepare_barrier();

// The parts of a list of tensors. UsageError as the single ones, with the tensor's place in the
// list; in place also if two tensors share memory.
CoalescedCall prepare_all_reduce_list(const Party& party, const std::vector<at::Tensor>& tensors,
                                      ReduceOp op);
CoalescedCall prepare_all_reduce_list_in_place(const Party& party,
                                               const std::vector<at::Tensor>& tensors, ReduceOp op);
CoalescedCall prepare_all_gather_list(const Party& party, const std::vector<TensorAlong>& tensors);
CoalescedCall prepare_reduce_scatter_list(const Party& party,
                                          const std::vector<TensorAlong>& tensors, ReduceOp op);

// A message's tensor must be contiguous: it is read or written while the call is under way.
PreparedCall prepare_message(const Party& party, Kind kind, const at::Tensor& tensor, int peer,
                             int tag);
// UsageError if no message can go to that peer under that tag and carry its shape.
Call shaped_message_call(const Party& party, Kind kind, int peer, int tag);

}  // namespace tegula::inner::comm
