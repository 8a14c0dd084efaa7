// A call is made ready in the caller's thread (prepared_call.h): what is wrong with it is found
// there. Then it runs, at once or on the engine's worker, in the order in which calls were made.
// Messages go beside that order (group_messages.h).
#include "tegula/comm/group.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/base/text.h"
#include "tegula/comm/group_call.h"
#include "tegula/comm/group_messages.h"
#include "tegula/comm/group_state.h"
#include "tegula/comm/prepared_call.h"
#include "tegula/comm/world_state.h"

namespace tegula {

using namespace inner;

using comm::GroupState;
using comm::Kind;
using comm::Party;
using comm::PreparedCall;

at::Tensor Pending::wait() const { return state_->wait().front(); }
bool Pending::is_done() const { return state_->has_ended(); }
std::vector<at::Tensor> PendingList::wait() const { return state_->wait(); }
bool PendingList::is_done() const { return state_->has_ended(); }

namespace {

// Does what comes before a call. If this rank cannot make it, the others shall not wait for it.
template <class Begin>
auto or_refused(GroupState& group, Kind kind, Begin begin) {
  try {
    return begin();
  } catch (...) {
    group.engine().refuse(kind, sentence_of(std::current_exception()));
    throw;
  }
}

template <class Make>
auto ready(GroupState& group, Kind kind, Make make) {
  const Party party = comm::party_of(group);
  return or_refused(group, kind, [&] { return make(party); });
}

std::int64_t bytes_sent_by(const PreparedCall& prepared) {
  return prepared.input.defined() ? static_cast<std::int64_t>(prepared.input.nbytes()) : 0;
}

std::int64_t bytes_sent_by(const comm::CoalescedCall& all) {
  std::int64_t bytes = 0;
  for (const PreparedCall& prepared : all.parts) bytes += bytes_sent_by(prepared);
  return bytes;
}

// A collective, with what its members have to agree on.
template <class Make>
auto ready_collective(GroupState& group, Kind kind, Make make) {
  auto prepared = ready(group, kind, make);
  comm::Agreed& agreed = group.carrier().agreed;
  if (group.agreements->notes() != agreed.notes) {
    agreed = group.agreements->among(group.ranks, agreed);
    prepared.call.agreeing_on(agreed.hash, agreed.errors, agreed.latest);
  } else if (agreed.hash != 0) {
    prepared.call.agreeing_on(agreed.hash, agreed.errors, {});
  }
  return prepared;
}

// One thread of the rank at a time makes calls on a lane of a group.
class OneThread {
 public:
  explicit OneThread(GroupState& group) : carrier_(group.carrier()) {
    if (!carrier_.is_busy.exchange(true, std::memory_order_acquire)) return;
    if (group.ranks.size() == 1 || !group.flights) return;  // no other rank waits
    throw UsageError("two threads of this rank are in calls on one group at the same time")
        .fact("group", group.name)
        .hint("give each thread a lane of its own: tegula::Lane lane(\"evaluation\")");
  }
  ~OneThread() { carrier_.is_busy.store(false, std::memory_order_release); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  comm::Engine& engine() { return *carrier_.engine; }

 private:
  GroupState::Carrier& carrier_;
};

template <class Make>
auto run_now(GroupState& group, Kind kind, Make make) {
  OneThread thread(group);
  const auto prepared = ready_collective(group, kind, make);
  const comm::Flight flight(group, prepared.call);
  const std::shared_ptr<comm::LogLine> line =
      comm::noted(group, prepared.call, bytes_sent_by(prepared));
  const comm::LogTime time(line);
  const Profiled event([&] { return comm::profiled_name(group, prepared.call); });
  comm::Engine& engine = thread.engine();
  const std::unique_ptr<comm::LetGo> let_go = comm::let_go_while_waiting();
  const std::unique_lock<std::mutex> lock = engine.worker().lock_when_idle();
  engine.compare_agreed(prepared.call);
  return prepared.run(engine);
}

// The worker ends before the engine does, so that the task may name the engine.
template <class Make>
std::shared_ptr<comm::PendingState> run_async(GroupState& group, Kind kind, Make make) {
  OneThread thread(group);
  auto pending = std::make_shared<comm::PendingState>();
  auto prepared = ready_collective(group, kind, make);
  auto flight = std::make_shared<const comm::Flight>(group, prepared.call);
  pending->line = comm::noted(group, prepared.call, bytes_sent_by(prepared));
  const Profiled event([&] { return pending->name = comm::profiled_name(group, prepared.call); });
  comm::Engine& engine = thread.engine();
  comm::Worker::Task task = [pending, prepared = std::move(prepared), flight = std::move(flight),
                             &engine]() -> comm::Worker::Announcement {
    try {
      engine.compare_agreed(prepared.call);
      return [pending, result = prepared.run(engine)] { pending->end(result); };
    } catch (...) {
      return [pending, error = std::current_exception()] { pending->fail(error); };
    }
  };
  or_refused(group, kind, [&] { engine.queue(std::move(task)); });
  return pending;
}

}  // namespace

const std::string& Group::name() const { return state_->name; }
const std::vector<int>& Group::ranks() const { return state_->ranks; }
int Group::size() const { return static_cast<int>(state_->ranks.size()); }
int Group::index() const { return state_->index; }
std::string Group::engine() const { return std::string(state_->engine().name()); }
c10::intrusive_ptr<c10d::Backend> Group::backend() const { return state_->engine().backend(); }

void Group::set_timeout(std::chrono::milliseconds timeout) const {
  state_->timeout = comm::checked_timeout(timeout);
  state_->engine().set_timeout(timeout);
}

void Group::abort(const std::string& reason) const {
  state_->home.check();
  const std::vector<std::int64_t> members(ranks().begin(), ranks().end());
  state_->engine().abort(
      CommError(reason)
          .fact("group", name() + ", ranks " + bracketed(members))
          .fact("by", "rank " + std::to_string(ranks()[static_cast<std::size_t>(index())])));
}

namespace {

// What each collective does, ready to run now or async.
auto all_reduce_of(const at::Tensor& tensor, ReduceOp op) {
  return [&tensor, op](const Party& party) { return comm::prepare_all_reduce(party, tensor, op); };
}

auto all_reduce_in_place_of(const at::Tensor& tensor, ReduceOp op) {
  return [&tensor, op](const Party& party) {
    return comm::prepare_all_reduce_in_place(party, tensor, op);
  };
}

auto all_gather_of(const at::Tensor& tensor, std::int64_t dim, const Group::Sizes& sizes) {
  return [&tensor, dim, &sizes](const Party& party) {
    return comm::prepare_all_gather(party, tensor, dim, sizes);
  };
}

auto reduce_scatter_of(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                       const Group::Sizes& sizes) {
  return [&tensor, dim, op, &sizes](const Party& party) {
    return comm::prepare_reduce_scatter(party, tensor, dim, op, sizes);
  };
}

auto all_to_all_of(const at::Tensor& tensor, std::int64_t split_dim, std::int64_t join_dim,
                   const Group::Sizes& split_sizes, const Group::Sizes& join_sizes) {
  return [&tensor, split_dim, join_dim, &split_sizes, &join_sizes](const Party& party) {
    return comm::prepare_all_to_all(party, tensor, split_dim, join_dim, split_sizes, join_sizes);
  };
}

auto broadcast_of(const at::Tensor& tensor, int root) {
  return
      [&tensor, root](const Party& party) { return comm::prepare_broadcast(party, tensor, root); };
}

auto scatter_of(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim, int root,
                const Group::Sizes& sizes) {
  return [&part, &whole, dim, root, &sizes](const Party& party) {
    return comm::prepare_scatter(party, part, whole, dim, root, sizes);
  };
}

auto gather_of(const at::Tensor& tensor, std::int64_t dim, int root, const Group::Sizes& sizes) {
  return [&tensor, dim, root, &sizes](const Party& party) {
    return comm::prepare_gather(party, tensor, dim, root, sizes);
  };
}

auto permute_of(const at::Tensor& tensor, const std::vector<int>& to,
                const std::optional<std::vector<std::int64_t>>& shape) {
  return [&tensor, &to, &shape](const Party& party) {
    return comm::prepare_permute(party, tensor, to, shape);
  };
}

auto all_reduce_list_of(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  return [&tensors, op](const Party& party) {
    return comm::prepare_all_reduce_list(party, tensors, op);
  };
}

auto all_reduce_list_in_place_of(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  return [&tensors, op](const Party& party) {
    return comm::prepare_all_reduce_list_in_place(party, tensors, op);
  };
}

auto all_gather_list_of(const std::vector<TensorAlong>& tensors) {
  return [&tensors](const Party& party) { return comm::prepare_all_gather_list(party, tensors); };
}

auto reduce_scatter_list_of(const std::vector<TensorAlong>& tensors, ReduceOp op) {
  return [&tensors, op](const Party& party) {
    return comm::prepare_reduce_scatter_list(party, tensors, op);
  };
}

PreparedCall barrier_of(const Party&) { return comm::prepare_barrier(); }

}  // namespace

at::Tensor Group::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  return run_now(*state_, Kind::AllReduce, all_reduce_of(tensor, op));
}

void Group::all_reduce_(const at::Tensor& tensor, ReduceOp op) const {
  run_now(*state_, Kind::AllReduce, all_reduce_in_place_of(tensor, op));
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

std::vector<at::Tensor> Group::all_reduce_coalesced(const std::vector<at::Tensor>& tensors,
                                                    ReduceOp op) const {
  return run_now(*state_, Kind::AllReduce, all_reduce_list_of(tensors, op));
}

void Group::all_reduce_coalesced_(const std::vector<at::Tensor>& tensors, ReduceOp op) const {
  run_now(*state_, Kind::AllReduce, all_reduce_list_in_place_of(tensors, op));
}

std::vector<at::Tensor> Group::all_gather_coalesced(const std::vector<TensorAlong>& tensors) const {
  return run_now(*state_, Kind::AllGather, all_gather_list_of(tensors));
}

std::vector<at::Tensor> Group::reduce_scatter_coalesced(const std::vector<TensorAlong>& tensors,
                                                        ReduceOp op) const {
  return run_now(*state_, Kind::ReduceScatter, reduce_scatter_list_of(tensors, op));
}

void Group::send(const at::Tensor& tensor, int to, int tag) const {
  comm::message_now(*state_, Kind::Send, tensor, to, tag);
}

void Group::recv(const at::Tensor& tensor, int from, int tag) const {
  comm::message_now(*state_, Kind::Recv, tensor, from, tag);
}

void Group::send_with_shape(const at::Tensor& tensor, int to, int tag) const {
  comm::run_message(*state_, comm::shaped_send(*state_, tensor, to, tag));
}

at::Tensor Group::recv_with_shape(int from, int tag) const {
  return comm::run_message(*state_, comm::shaped_recv(*state_, from, tag));
}

void Group::barrier() const { run_now(*state_, Kind::Barrier, barrier_of); }

Pending Group::all_reduce_async(const at::Tensor& tensor, ReduceOp op) const {
  return Pending(run_async(*state_, Kind::AllReduce, all_reduce_of(tensor, op)));
}

Pending Group::all_reduce_async_(const at::Tensor& tensor, ReduceOp op) const {
  return Pending(run_async(*state_, Kind::AllReduce, all_reduce_in_place_of(tensor, op)));
}

Pending Group::all_gather_async(const at::Tensor& tensor, std::int64_t dim,
                                const Sizes& sizes) const {
  return Pending(run_async(*state_, Kind::AllGather, all_gather_of(tensor, dim, sizes)));
}

Pending Group::reduce_scatter_async(const at::Tensor& tensor, std::int64_t dim, ReduceOp op,
                                    const Sizes& sizes) const {
  return Pending(
      run_async(*state_, Kind::ReduceScatter, reduce_scatter_of(tensor, dim, op, sizes)));
}

Pending Group::all_to_all_async(const at::Tensor& tensor, std::int64_t split_dim,
                                std::int64_t join_dim, const Sizes& split_sizes,
                                const Sizes& join_sizes) const {
  return Pending(run_async(*state_, Kind::AllToAll,
                           all_to_all_of(tensor, split_dim, join_dim, split_sizes, join_sizes)));
}

Pending Group::broadcast_async(const at::Tensor& tensor, int root) const {
  return Pending(run_async(*state_, Kind::Broadcast, broadcast_of(tensor, root)));
}

Pending Group::scatter_async(const at::Tensor& part, const at::Tensor& whole, std::int64_t dim,
                             int root, const Sizes& sizes) const {
  return Pending(run_async(*state_, Kind::Scatter, scatter_of(part, whole, dim, root, sizes)));
}

Pending Group::gather_async(const at::Tensor& tensor, std::int64_t dim, int root,
                            const Sizes& sizes) const {
  return Pending(run_async(*state_, Kind::Gather, gather_of(tensor, dim, root, sizes)));
}

Pending Group::permute_async(const at::Tensor& tensor, const std::vector<int>& to,
                             const std::optional<std::vector<std::int64_t>>& shape) const {
  return Pending(run_async(*state_, Kind::Permute, permute_of(tensor, to, shape)));
}

PendingList Group::all_reduce_coalesced_async(const std::vector<at::Tensor>& tensors,
                                              ReduceOp op) const {
  return PendingList(run_async(*state_, Kind::AllReduce, all_reduce_list_of(tensors, op)));
}

PendingList Group::all_reduce_coalesced_async_(const std::vector<at::Tensor>& tensors,
                                               ReduceOp op) const {
  return PendingList(run_async(*state_, Kind::AllReduce, all_reduce_list_in_place_of(tensors, op)));
}

PendingList Group::all_gather_coalesced_async(const std::vector<TensorAlong>& tensors) const {
  return PendingList(run_async(*state_, Kind::AllGather, all_gather_list_of(tensors)));
}

PendingList Group::reduce_scatter_coalesced_async(const std::vector<TensorAlong>& tensors,
                                                  ReduceOp op) const {
  return PendingList(run_async(*state_, Kind::ReduceScatter, reduce_scatter_list_of(tensors, op)));
}

Pending Group::send_async(const at::Tensor& tensor, int to, int tag) const {
  return Pending(comm::message_async(*state_, Kind::Send, tensor, to, tag));
}

Pending Group::recv_async(const at::Tensor& tensor, int from, int tag) const {
  return Pending(comm::message_async(*state_, Kind::Recv, tensor, from, tag));
}

Pending Group::send_with_shape_async(const at::Tensor& tensor, int to, int tag) const {
  return Pending(comm::start_message(*state_, comm::shaped_send(*state_, tensor, to, tag)));
}

Pending Group::recv_with_shape_async(int from, int tag) const {
  return Pending(comm::start_message(*state_, comm::shaped_recv(*state_, from, tag)));
}

Pending Group::barrier_async() const {
  return Pending(run_async(*state_, Kind::Barrier, barrier_of));
}

}  // namespace tegula
