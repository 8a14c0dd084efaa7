#include "tegula/comm/group.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <mutex>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/comm/group_state.h"
#include "tegula/comm/log_book.h"
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
  std::shared_ptr<LogLine> line;  // null: no log stood when the call was started

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
  const comm::LogTime time(state_->line);
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

// Makes a call ready. If this rank refuses it, the others shall not wait for it.
template <class Make>
Move ready(GroupState& group, Kind kind, Make make) {
  try {
    return make(party_of(group));
  } catch (const UsageError& error) {
    group.engine->refuse(kind, error);
    throw;
  }
}

// Null if no log stands.
std::shared_ptr<comm::LogLine> noted(const GroupState& group, const Move& move) {
  if (!group.log_book->is_open()) return nullptr;
  CommEntry entry;
  entry.kind = move.call.kind();
  entry.axis = group.axis;
  entry.ranks = static_cast<int>(group.ranks.size());
  if (move.input.defined()) entry.bytes = static_cast<std::int64_t>(move.input.nbytes());
  if (move.call.has_op()) entry.reduction = move.call.op();
  entry.op = CommLabel::current();
  return group.log_book->write(std::move(entry));
}

template <class Make>
at::Tensor run_now(GroupState& group, Kind kind, Make make) {
  const Move move = ready(group, kind, make);
  const std::shared_ptr<comm::LogLine> line = noted(group, move);
  const comm::LogTime time(line);
  const std::unique_lock<std::mutex> lock = group.engine->worker().lock_when_idle();
  return move.run(*group.engine);
}

// The worker ends before the engine does, so that the task may name the engine.
template <class Make>
std::shared_ptr<comm::PendingState> run_later(GroupState& group, Kind kind, Make make) {
  auto pending = std::make_shared<comm::PendingState>();
  Move ready_move = ready(group, kind, make);
  pending->line = noted(group, ready_move);
  group.engine->worker().queue([pending, move = std::move(ready_move),
                                engine = group.engine.get()]() -> comm::Worker::Announcement {
    try {
      return [pending, result = move.run(*engine)] { pending->end(nullptr, result); };
    } catch (...) {
      return [pending, error = std::current_exception()] { pending->end(error, {}); };
    }
  });
  return pending;
}

void message_now(GroupState& group, Kind kind, const at::Tensor& tensor, int peer, int tag) {
  const Move move = comm::message_move(party_of(group), kind, tensor, peer, tag);
  const std::shared_ptr<comm::LogLine> line = noted(group, move);
  const comm::LogTime time(line);
  group.engine->message_now(move.call, move.from[0], peer);
  if (kind == Kind::Recv && !move.input.is_same(tensor)) tensor.copy_(move.input);
}

std::shared_ptr<comm::PendingState> message_later(GroupState& group, Kind kind,
                                                  const at::Tensor& tensor, int peer, int tag) {
  const Move move = comm::message_move(party_of(group), kind, tensor, peer, tag);
  auto pending = std::make_shared<comm::PendingState>();
  pending->line = noted(group, move);
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

namespace {

// What each collective does, ready to run now or later.
auto all_reduce_of(const at::Tensor& tensor, ReduceOp op) {
  return [&tensor, op](const Party& party) { return comm::all_reduce_move(party, tensor, op); };
}

auto all_gather_of(const at::Tensor& tensor, std::int64_t dim, const Group::Sizes& sizes) {
  return [&tensor, dim, &sizes](const Party& party) {
    return comm::all_gather_move(party, tensor, dim, sizes);
  };
}

auto reduce_scatter_of(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                       const Group::Sizes& sizes) {
  return [&tensor, dim, op, &sizes](const Party& party) {
    return comm::reduce_scatter_move(party, tensor, dim, op, sizes);
  };
}

auto all_to_all_of(const at::Tensor& tensor, std::int64_t split_dim, std::int64_t join_dim,
                   const Group::Sizes& split_sizes, const Group::Sizes& join_sizes) {
  return [&tensor, split_dim, join_dim, &split_sizes, &join_sizes](const Party& party) {
    return comm::all_to_all_move(party, tensor, split_dim, join_dim, split_sizes, join_sizes);
  };
}

auto broadcast_of(const at::Tensor& tensor, int root) {
  return [&tensor, root](const Party& party) { return comm::broadcast_move(party, tensor, root); };
}

auto scatter_of(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim, int root,
                const Group::Sizes& sizes) {
  return [&part, &whole, dim, root, &sizes](const Party& party) {
    return comm::scatter_move(party, part, whole, dim, root, sizes);
  };
}

auto gather_of(const at::Tensor& tensor, std::int64_t dim, int root, const Group::Sizes& sizes) {
  return [&tensor, dim, root, &sizes](const Party& party) {
    return comm::gather_move(party, tensor, dim, root, sizes);
  };
}

auto permute_of(const at::Tensor& tensor, const std::vector<int>& to,
                const std::optional<std::vector<std::int64_t>>& shape) {
  return [&tensor, &to, &shape](const Party& party) {
    return comm::permute_move(party, tensor, to, shape ? at::IntArrayRef(*shape) : tensor.sizes());
  };
}

Move barrier_of(const Party&) { return comm::barrier_move(); }

}  // namespace

at::Tensor Group::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  return run_now(*state_, Kind::AllReduce, all_reduce_of(tensor, op));
}

void Group::all_reduce_(const at::Tensor& tensor, ReduceOp op) const {
  run_now(*state_, Kind::AllReduce,
          [&](const Party&) { return comm::all_reduce_in_place_move(tensor, op); });
}

at::Tensor Group::all_gather(const at::Tensor& tensor, std::int64_t dim, const Sizes& sizes) const {
  return run_now(*state_, Kind::AllGather, all_gather_of(tensor, dim, sizes));
}

at::Tensor Group::reduce_scatter(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                                 const Sizes& sizes) const {
  return run_now(*state_, Kind::ReduceScatter, reduce_scatter_of(tensor, dim, op, sizes));
}

at::Tensor Group::all_to_all(const at::Tensor& tensor, std::int64_t split_dim,
                             std::int64_t join_dim, const Sizes& split_sizes,
                             const Sizes& join_sizes) const {
  return run_now(*state_, Kind::AllToAll,
                 all_to_all_of(tensor, split_dim, join_dim, split_sizes, join_sizes));
}

at::Tensor Group::broadcast(const at::Tensor& tensor, int root) const {
  return run_now(*state_, Kind::Broadcast, broadcast_of(tensor, root));
}

void Group::broadcast_(const at::Tensor& tensor, int root) const {
  const at::Tensor result = broadcast(tensor, root);
  if (index() != root) tensor.copy_(result);
}

void Group::scatter(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim, int root,
                    const Sizes& sizes) const {
  run_now(*state_, Kind::Scatter, scatter_of(part, whole, dim, root, sizes));
}

at::Tensor Group::gather(const at::Tensor& tensor, std::int64_t dim, int root,
                         const Sizes& sizes) const {
  return run_now(*state_, Kind::Gather, gather_of(tensor, dim, root, sizes));
}

at::Tensor Group::permute(const at::Tensor& tensor, const std::vector<int>& to,
                          const std::optional<std::vector<std::int64_t>>& shape) const {
  return run_now(*state_, Kind::Permute, permute_of(tensor, to, shape));
}

void Group::send(const at::Tensor& tensor, int to, int tag) const {
  message_now(*state_, Kind::Send, tensor, to, tag);
}

void Group::recv(const at::Tensor& tensor, int from, int tag) const {
  message_now(*state_, Kind::Recv, tensor, from, tag);
}

void Group::barrier() const { run_now(*state_, Kind::Barrier, barrier_of); }

Pending Group::all_reduce_later(const at::Tensor& tensor, ReduceOp op) const {
  return Pending(run_later(*state_, Kind::AllReduce, all_reduce_of(tensor, op)));
}

Pending Group::all_gather_later(const at::Tensor& tensor, std::int64_t dim,
                                const Sizes& sizes) const {
  return Pending(run_later(*state_, Kind::AllGather, all_gather_of(tensor, dim, sizes)));
}

Pending Group::reduce_scatter_later(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                                    const Sizes& sizes) const {
  return Pending(
      run_later(*state_, Kind::ReduceScatter, reduce_scatter_of(tensor, dim, op, sizes)));
}

Pending Group::all_to_all_later(const at::Tensor& tensor, std::int64_t split_dim,
                                std::int64_t join_dim, const Sizes& split_sizes,
                                const Sizes& join_sizes) const {
  return Pending(run_later(*state_, Kind::AllToAll,
                           all_to_all_of(tensor, split_dim, join_dim, split_sizes, join_sizes)));
}

Pending Group::broadcast_later(const at::Tensor& tensor, int root) const {
  return Pending(run_later(*state_, Kind::Broadcast, broadcast_of(tensor, root)));
}

Pending Group::scatter_later(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim,
                             int root, const Sizes& sizes) const {
  return Pending(run_later(*state_, Kind::Scatter, scatter_of(part, whole, dim, root, sizes)));
}

Pending Group::gather_later(const at::Tensor& tensor, std::int64_t dim, int root,
                            const Sizes& sizes) const {
  return Pending(run_later(*state_, Kind::Gather, gather_of(tensor, dim, root, sizes)));
}

Pending Group::permute_later(const at::Tensor& tensor, const std::vector<int>& to,
                             const std::optional<std::vector<std::int64_t>>& shape) const {
  return Pending(run_later(*state_, Kind::Permute, permute_of(tensor, to, shape)));
}

Pending Group::send_later(const at::Tensor& tensor, int to, int tag) const {
  return Pending(message_later(*state_, Kind::Send, tensor, to, tag));
}

Pending Group::recv_later(const at::Tensor& tensor, int from, int tag) const {
  return Pending(message_later(*state_, Kind::Recv, tensor, from, tag));
}

Pending Group::barrier_later() const {
  return Pending(run_later(*state_, Kind::Barrier, barrier_of));
}

}  // namespace tegula
