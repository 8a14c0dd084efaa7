#include "tegula/comm/group.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <mutex>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/comm/group_state.h"
#include "tegula/comm/move.h"

namespace tegula {

using comm::GroupState;
using comm::Kind;
using comm::Move;
using comm::Party;

namespace comm {

struct PendingState {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;
  std::exception_ptr error;
  at::Tensor result;

  void end(std::exception_ptr cause, at::Tensor value) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      error = std::move(cause);
      if (!error) result = std::move(value);
      is_done = true;
    }
    ended.notify_all();
  }
};

}  // namespace comm

at::Tensor Pending::wait() const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->ended.wait(lock, [this] { return state_->is_done; });
  if (state_->error) std::rethrow_exception(state_->error);
  return state_->result;
}

bool Pending::is_done() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->is_done;
}

namespace {

Party party_of(const GroupState& group) {
  return {static_cast<int>(group.ranks.size()), group.index, *group.buffers};
}

at::Tensor run_now(GroupState& group, const Move& move) {
  const std::unique_lock<std::mutex> lock = group.engine->worker().lock_when_idle();
  move.run(*group.engine);
  return move.result;
}

// The worker ends before the engine does, so that the task may name the engine.
std::shared_ptr<comm::PendingState> run_later(GroupState& group, Move move) {
  auto pending = std::make_shared<comm::PendingState>();
  group.engine->worker().queue([pending, move = std::move(move), engine = group.engine.get()] {
    try {
      move.run(*engine);
      pending->end(nullptr, move.result);
    } catch (...) {
      pending->end(std::current_exception(), {});
    }
  });
  return pending;
}

void message_now(GroupState& group, Kind kind, const at::Tensor& tensor, int peer, int tag) {
  const Move move = comm::message_move(party_of(group), kind, tensor, peer, tag);
  group.engine->message_now(move.call, move.from[0], peer);
  if (kind == Kind::Recv && !move.input.is_same(tensor)) tensor.copy_(move.input);
}

std::shared_ptr<comm::PendingState> message_later(GroupState& group, Kind kind,
                                                  const at::Tensor& tensor, int peer, int tag) {
  const Move move = comm::message_move(party_of(group), kind, tensor, peer, tag);
  auto pending = std::make_shared<comm::PendingState>();
  const bool copies_back = kind == Kind::Recv && !move.input.is_same(tensor);
  group.engine->message_later(
      move.call, move.from[0], peer,
      [pending, input = move.input, tensor, kind, copies_back](std::exception_ptr error) {
        if (!error && copies_back) tensor.copy_(input);
        pending->end(std::move(error), kind == Kind::Recv ? tensor : at::Tensor());
      });
  return pending;
}

}  // namespace

const std::string& Group::name() const { return state_->name; }
const std::vector<int>& Group::ranks() const { return state_->ranks; }
int Group::size() const { return static_cast<int>(state_->ranks.size()); }
int Group::index() const { return state_->index; }
std::string Group::engine() const { return std::string(state_->engine->name()); }
c10::intrusive_ptr<c10d::Backend> Group::backend() const { return state_->engine->backend(); }

void Group::set_timeout(std::chrono::milliseconds timeout) const {
  state_->engine->set_timeout(timeout);
}

void Group::abort(const std::string& reason) const {
  const std::vector<std::int64_t> members(ranks().begin(), ranks().end());
  state_->engine->abort(
      CommError(reason)
          .fact("group", name() + ", ranks " + bracketed(members))
          .fact("by", "rank " + std::to_string(ranks()[static_cast<std::size_t>(index())])));
}

at::Tensor Group::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  return run_now(*state_, comm::all_reduce_move(party_of(*state_), tensor, op));
}

void Group::all_reduce_(const at::Tensor& tensor, ReduceOp op) const {
  const Move move = comm::all_reduce_in_place_move(tensor, op);
  run_now(*state_, move);
  if (!move.result.is_same(tensor)) tensor.copy_(move.result);
}

at::Tensor Group::all_gather(const at::Tensor& tensor, std::int64_t dim, const Sizes& sizes) const {
  return run_now(*state_, comm::all_gather_move(party_of(*state_), tensor, dim, sizes));
}

at::Tensor Group::reduce_scatter(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                                 const Sizes& sizes) const {
  return run_now(*state_, comm::reduce_scatter_move(party_of(*state_), tensor, dim, op, sizes));
}

at::Tensor Group::all_to_all(const at::Tensor& tensor, std::int64_t split_dim,
                             std::int64_t join_dim, const Sizes& split_sizes,
                             const Sizes& join_sizes) const {
  return run_now(*state_, comm::all_to_all_move(party_of(*state_), tensor, split_dim, join_dim,
                                                split_sizes, join_sizes));
}

at::Tensor Group::broadcast(const at::Tensor& tensor, int root) const {
  return run_now(*state_, comm::broadcast_move(party_of(*state_), tensor, root));
}

void Group::broadcast_(const at::Tensor& tensor, int root) const {
  const at::Tensor result = broadcast(tensor, root);
  if (index() != root) tensor.copy_(result);
}

void Group::scatter(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim, int root,
                    const Sizes& sizes) const {
  const Move move = comm::scatter_move(party_of(*state_), part, whole, dim, root, sizes);
  run_now(*state_, move);
  if (!move.result.is_same(part)) part.copy_(move.result);
}

at::Tensor Group::gather(const at::Tensor& tensor, std::int64_t dim, int root,
                         const Sizes& sizes) const {
  return run_now(*state_, comm::gather_move(party_of(*state_), tensor, dim, root, sizes));
}

at::Tensor Group::permute(const at::Tensor& tensor, const std::vector<int>& to,
                          const std::optional<std::vector<std::int64_t>>& shape) const {
  const at::IntArrayRef received = shape ? at::IntArrayRef(*shape) : tensor.sizes();
  return run_now(*state_, comm::permute_move(party_of(*state_), tensor, to, received));
}

void Group::send(const at::Tensor& tensor, int to, int tag) const {
  message_now(*state_, Kind::Send, tensor, to, tag);
}

void Group::recv(const at::Tensor& tensor, int from, int tag) const {
  message_now(*state_, Kind::Recv, tensor, from, tag);
}

void Group::barrier() const { run_now(*state_, comm::barrier_move()); }

Pending Group::all_reduce_later(const at::Tensor& tensor, ReduceOp op) const {
  return Pending(run_later(*state_, comm::all_reduce_move(party_of(*state_), tensor, op)));
}

Pending Group::all_gather_later(const at::Tensor& tensor, std::int64_t dim,
                                const Sizes& sizes) const {
  return Pending(run_later(*state_, comm::all_gather_move(party_of(*state_), tensor, dim, sizes)));
}

Pending Group::reduce_scatter_later(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                                    const Sizes& sizes) const {
  return Pending(
      run_later(*state_, comm::reduce_scatter_move(party_of(*state_), tensor, dim, op, sizes)));
}

Pending Group::all_to_all_later(const at::Tensor& tensor, std::int64_t split_dim,
                                std::int64_t join_dim, const Sizes& split_sizes,
                                const Sizes& join_sizes) const {
  return Pending(run_later(*state_, comm::all_to_all_move(party_of(*state_), tensor, split_dim,
                                                          join_dim, split_sizes, join_sizes)));
}

Pending Group::broadcast_later(const at::Tensor& tensor, int root) const {
  return Pending(run_later(*state_, comm::broadcast_move(party_of(*state_), tensor, root)));
}

Pending Group::send_later(const at::Tensor& tensor, int to, int tag) const {
  return Pending(message_later(*state_, Kind::Send, tensor, to, tag));
}

Pending Group::recv_later(const at::Tensor& tensor, int from, int tag) const {
  return Pending(message_later(*state_, Kind::Recv, tensor, from, tag));
}

Pending Group::barrier_later() const { return Pending(run_later(*state_, comm::barrier_move())); }

}  // namespace tegula
