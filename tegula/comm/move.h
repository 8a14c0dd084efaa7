// A collective ready to run: what to send from where, what to put where. Made from tensors and dims
// in the caller's thread; run there or on the group's worker.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <vector>

#include "tegula/comm/call.h"
#include "tegula/comm/engine.h"
#include "tegula/comm/group.h"
#include "tegula/comm/piece.h"

namespace tegula::inner::comm {

class Buffers;

// `input` and `result` keep the memory of the pieces alive. A `target` is the tensor that the
// caller wants filled; the result is copied there if it had to be made elsewhere.
struct Move {
  Call call;
  at::Tensor input;
  at::Tensor result;
  at::Tensor target;
  c10::SmallVector<Piece, 4> from;
  c10::SmallVector<Piece, 4> to;

  // The target, else the result; undefined if there is none.
  at::Tensor run(Engine& engine) const;
  // The same, once the call is carried out.
  at::Tensor finish() const;

 private:
  void carry_out(Engine& engine) const;
};

// Moves of one kind, carried out as one call.
struct CoalescedMove {
  Call call;
  std::vector<Move> moves;

  std::vector<at::Tensor> run(Engine& engine) const;
};

// What a move needs to know of its group.
struct Party {
  int size;
  int index;
  Buffers& buffers;
  const Engine& engine;
};

using Sizes = std::vector<std::int64_t>;

// Each checks its arguments (UsageError) and allocates the result; see Group for their meaning.
Move all_reduce_move(const Party& party, const at::Tensor& tensor, ReduceOp op);
Move all_reduce_in_place_move(const Party& party, const at::Tensor& tensor, ReduceOp op);
Move all_gather_move(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                     const Sizes& sizes);
Move reduce_scatter_move(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                         ReduceOp op, const Sizes& sizes);
Move all_to_all_move(const Party& party, const at::Tensor& tensor, std::int64_t split_dim,
                     std::int64_t join_dim, const Sizes& split_sizes, const Sizes& join_sizes);
Move broadcast_move(const Party& party, const at::Tensor& tensor, int root);
Move scatter_move(const Party& party, const at::Tensor& part, const at::Tensor& whole,
                  std::int64_t dim, int root, const Sizes& sizes);
Move gather_move(const Party& party, const at::Tensor& tensor, std::int64_t dim, int root,
                 const Sizes& sizes);
Move permute_move(const Party& party, const at::Tensor& tensor, const std::vector<int>& to,
                  const std::optional<Sizes>& shape);
Move barrier_move();

// The moves of a list of tensors. UsageError as the single ones, with the tensor's place in the
// list; in place also if two tensors share memory.
CoalescedMove all_reduce_list_move(const Party& party, const std::vector<at::Tensor>& tensors,
                                   ReduceOp op);
CoalescedMove all_reduce_list_in_place_move(const Party& party,
                                            const std::vector<at::Tensor>& tensors, ReduceOp op);
CoalescedMove all_gather_list_move(const Party& party, const std::vector<TensorAlong>& tensors);
CoalescedMove reduce_scatter_list_move(const Party& party, const std::vector<TensorAlong>& tensors,
                                       ReduceOp op);

// A message's tensor must be contiguous: it is read or written while the call is under way.
Move message_move(const Party& party, Kind kind, const at::Tensor& tensor, int peer, int tag);
// UsageError if no message can go to that peer under that tag and carry its shape.
Call shaped_message_call(const Party& party, Kind kind, int peer, int tag);

}  // namespace tegula::inner::comm
