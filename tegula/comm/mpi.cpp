// Open MPI or MPICH. Bytes move by non-blocking calls that are tested until done or until the
// timeout, which a blocking MPI call could not keep. All pairs of ranks exchange directly.
#include "tegula/comm/mpi.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>

#include "tegula/base/hash.h"
#include "tegula/base/process.h"
#include "tegula/base/text.h"
#include "tegula/bridge/seed_word.h"
#include "tegula/comm/c10d_engine.h"
#include "tegula/comm/engines.h"
#include "tegula/comm/shm/meeting.h"
#include "tegula/comm/world_state.h"

namespace tegula::inner::comm {
namespace {

using Clock = std::chrono::steady_clock;
using WorkHandle = c10::intrusive_ptr<c10d::Work>;

constexpr std::int64_t kLargestMessage = std::int64_t{1} << 30;
constexpr int kExchangeTag = 1;
constexpr std::size_t kGroupTags = 16'000;  // every MPI has tags up to 32767

// Set once a call failed. MPI belongs to the process, and so does its state: what waits for the
// other ranks (ending it, freeing a communicator) would then hang.
std::atomic<bool>& is_lost() {
  static std::atomic<bool> lost = false;
  return lost;
}

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  is_lost() = true;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(std::string(what) + " failed: " + text).hint("look at the output of mpirun");
}

bool is_initialized() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

// The process that uses MPI: its forked children must not.
const HomeProcess& home() {
  static const HomeProcess process;
  return process;
}

bool can_be_ended() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag == 0 && !is_lost() && home().is_here();
}

// Without this mpirun ends the other ranks.
void finalize() {
  if (can_be_ended()) MPI_Finalize();
}

// MPI can be started once in a process; if we do, it ends with the process.
void ensure_mpi() {
  home().check();
  static std::once_flag once;
  std::call_once(once, [] {
    if (is_initialized()) return;
    int granted = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted), "MPI_Init_thread");
    std::atexit(finalize);
  });
  int granted = 0;
  MPI_Query_thread(&granted);
  if (granted < MPI_THREAD_MULTIPLE) {
    throw UsageError("MPI was started without MPI_THREAD_MULTIPLE")
        .hint("call MPI_Init_thread with MPI_THREAD_MULTIPLE, or let Tegula start MPI");
  }
}

using Requests = std::vector<MPI_Request>;

bool are_done(Requests& requests) {
  int flag = 0;
  check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &flag, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  return flag != 0;
}

// Whether is_done() comes true before the timeout.
template <class IsDone>
bool comes_in_time(std::chrono::milliseconds timeout, IsDone is_done) {
  const Clock::time_point deadline = Clock::now() + timeout;
  for (int i = 0; !is_done(); ++i) {
    if (i > 100) sched_yield();
    if (i % 64 == 63 && Clock::now() > deadline) return false;
  }
  return true;
}

// Requests under way. MPI may write to the memory of those that nobody waits for any more, or
// waited for in vain: it is parked.
class MpiWork final : public c10d::Work {
 public:
  MpiWork(c10d::OpType type, std::vector<at::Tensor> kept, std::chrono::milliseconds timeout)
      : c10d::Work(-1, type), kept_(std::move(kept)), timeout_(timeout) {}
  ~MpiWork() override {
    if (!isCompleted()) park(kept_);
  }

  // To be filled before anybody waits.
  Requests& requests() { return requests_; }

  bool isCompleted() override {
    try {
      return requests_.empty() || is_done_ || (can_be_ended() && test());
    } catch (const CommError&) {
      return false;
    }
  }
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return kept_; }
  void abort() override {
    is_lost() = true;
    is_given_up_ = true;
  }

  bool wait(std::chrono::milliseconds) override {
    if (!comes_in_time(timeout_, [this] { return is_given_up_ || test(); })) {
      is_lost() = true;
      throw std::runtime_error("no answer within " + std::to_string(timeout_.count()) + " ms");
    }
    return is_done_;
  }

 private:
  bool test() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_done_) is_done_ = are_done(requests_);
    return is_done_;
  }

  Requests requests_;
  std::vector<at::Tensor> kept_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> is_done_ = false;
  std::atomic<bool> is_given_up_ = false;
};

class MpiBackend final : public c10d::Backend {
 public:
  MpiBackend(MPI_Comm collectives, MPI_Comm messages, int rank, int size,
             std::chrono::milliseconds timeout)
      : c10d::Backend(rank, size),
        collectives_(collectives),
        messages_(messages),
        timeout_(timeout) {}

  ~MpiBackend() override {
    if (!can_be_ended()) return;
    MPI_Comm_free(&collectives_);
    MPI_Comm_free(&messages_);
  }

  const std::string getBackendName() const override { return "tegula-mpi"; }

  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input,
                           std::vector<std::int64_t>& output_splits,
                           std::vector<std::int64_t>& input_splits,
                           const c10d::AllToAllOptions& options) override {
    const auto work = new_work(c10d::OpType::ALLTOALL_BASE, {output, input}, options.timeout);
    auto* received = static_cast<char*>(output.data_ptr());
    auto* sent = static_cast<char*>(input.data_ptr());
    for (int rank = 0; rank < getSize(); ++rank) {
      const std::int64_t bytes = part(output, output_splits, rank);
      start(*work, Direction::Receive, received, bytes, rank);
      received += bytes;
    }
    for (int rank = 0; rank < getSize(); ++rank) {
      const std::int64_t bytes = part(input, input_splits, rank);
      start(*work, Direction::Send, sent, bytes, rank);
      sent += bytes;
    }
    return work;
  }

  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input,
                             const c10d::AllgatherOptions& options) override {
    const auto work = new_work(c10d::OpType::_ALLGATHER_BASE, {output, input}, options.timeout);
    const auto bytes = static_cast<std::int64_t>(input.nbytes());
    for (int rank = 0; rank < getSize(); ++rank) {
      start(*work, Direction::Receive, static_cast<char*>(output.data_ptr()) + rank * bytes, bytes,
            rank);
    }
    for (int rank = 0; rank < getSize(); ++rank) {
      start(*work, Direction::Send, static_cast<char*>(input.data_ptr()), bytes, rank);
    }
    return work;
  }

  WorkHandle broadcast(std::vector<at::Tensor>& tensors,
                       const c10d::BroadcastOptions& options) override {
    const auto work = new_work(c10d::OpType::BROADCAST, tensors, options.timeout);
    const at::Tensor& tensor = tensors.at(0);
    auto* memory = static_cast<char*>(tensor.data_ptr());
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    for (std::int64_t begin = 0; begin < bytes; begin += kLargestMessage) {
      MPI_Request& request = work->requests().emplace_back(MPI_REQUEST_NULL);
      check(MPI_Ibcast(memory + begin, static_cast<int>(std::min(kLargestMessage, bytes - begin)),
                       MPI_BYTE, static_cast<int>(options.rootRank), collectives_, &request),
            "MPI_Ibcast");
    }
    return work;
  }

  WorkHandle barrier(const c10d::BarrierOptions& options) override {
    const auto work = new_work(c10d::OpType::BARRIER, {}, options.timeout);
    MPI_Request& request = work->requests().emplace_back(MPI_REQUEST_NULL);
    check(MPI_Ibarrier(collectives_, &request), "MPI_Ibarrier");
    return work;
  }

  WorkHandle send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return message(c10d::OpType::SEND, Direction::Send, tensors, to, tag);
  }
  WorkHandle recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return message(c10d::OpType::RECV, Direction::Receive, tensors, from, tag);
  }

 private:
  enum class Direction { Send, Receive };

  std::int64_t part(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                    int rank) const {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    if (splits.empty()) return bytes / getSize();
    const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    return rows == 0 ? 0 : splits[static_cast<std::size_t>(rank)] * (bytes / rows);
  }

  void start(MpiWork& work, Direction direction, char* memory, std::int64_t bytes, int peer) {
    start(work, direction, memory, bytes, peer, kExchangeTag, collectives_);
  }

  static void start(MpiWork& work, Direction direction, char* memory, std::int64_t bytes, int peer,
                    int tag, MPI_Comm communicator) {
    for (std::int64_t begin = 0; begin < bytes; begin += kLargestMessage) {
      const int count = static_cast<int>(std::min(kLargestMessage, bytes - begin));
      MPI_Request& request = work.requests().emplace_back(MPI_REQUEST_NULL);
      if (direction == Direction::Send) {
        check(MPI_Isend(memory + begin, count, MPI_BYTE, peer, tag, communicator, &request),
              "MPI_Isend");
      } else {
        check(MPI_Irecv(memory + begin, count, MPI_BYTE, peer, tag, communicator, &request),
              "MPI_Irecv");
      }
    }
  }

  WorkHandle message(c10d::OpType type, Direction direction, std::vector<at::Tensor>& tensors,
                     int peer, int tag) {
    const auto work = new_work(type, tensors, c10d::kUnsetTimeout);
    const at::Tensor& tensor = tensors.at(0);
    start(*work, direction, static_cast<char*>(tensor.data_ptr()),
          static_cast<std::int64_t>(tensor.nbytes()), peer, tag, messages_);
    return work;
  }

  c10::intrusive_ptr<MpiWork> new_work(c10d::OpType type, std::vector<at::Tensor> kept,
                                       std::chrono::milliseconds timeout) const {
    if (timeout == c10d::kUnsetTimeout) timeout = timeout_;
    return c10::make_intrusive<MpiWork>(type, std::move(kept), timeout);
  }

  MPI_Comm collectives_;
  MPI_Comm messages_;
  std::chrono::milliseconds timeout_;
};

// Making a communicator cannot be given up once it has begun, so it begins when all members are
// there: each tells each other one. Cost per rank: n - 1 messages of a byte, once.
void await_members(MPI_Comm parent, const EngineOptions& options, int tag) {
  const auto n = static_cast<std::size_t>(options.size);
  const at::Tensor words = at::zeros({static_cast<std::int64_t>(2 * n)}, at::kByte);
  auto* const memory = static_cast<char*>(words.data_ptr());
  Requests awaited(n, MPI_REQUEST_NULL), sent(n, MPI_REQUEST_NULL);
  for (std::size_t i = 0; i < n; ++i) {
    if (i == static_cast<std::size_t>(options.index)) continue;
    const int peer = options.ranks[i];
    check(MPI_Irecv(memory + i, 1, MPI_BYTE, peer, tag, parent, &awaited[i]), "MPI_Irecv");
    check(MPI_Isend(memory + n + i, 1, MPI_BYTE, peer, tag, parent, &sent[i]), "MPI_Isend");
  }
  if (comes_in_time(options.timeout, [&] { return are_done(awaited) && are_done(sent); })) return;
  is_lost() = true;
  park({words});
  std::vector<std::int64_t> absent;
  for (std::size_t i = 0; i < n; ++i) {
    int has_come = 0;
    check(MPI_Test(&awaited[i], &has_come, MPI_STATUS_IGNORE), "MPI_Test");
    if (has_come == 0) absent.push_back(options.ranks[i]);
  }
  throw CommError((absent.size() == 1 ? "rank " : "ranks ") + join(absent) +
                  " did not make the group within " + std::to_string(options.timeout.count()) +
                  " ms")
      .fact("group", options.group)
      .hint("every rank of a group must make it and call its collectives");
}

// Members only; the parent's other ranks take no part.
MPI_Comm sub_communicator(MPI_Comm parent, const std::vector<int>& ranks, int tag) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check(MPI_Comm_group(parent, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(parent, members, tag, &made), "MPI_Comm_create_group");
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  return made;
}

}  // namespace

std::shared_ptr<Engine> make_mpi_engine(const EngineOptions& options) {
  ensure_mpi();
  const MPI_Comm parent = options.communicator
                              ? *static_cast<const MPI_Comm*>(options.communicator.get())
                              : MPI_COMM_WORLD;
  int size = 0;
  MPI_Comm_size(parent, &size);
  if (*std::max_element(options.ranks.begin(), options.ranks.end()) >= size) {
    throw UsageError("MPI knows of " + counted(size, "rank", "ranks") + " only")
        .fact("group", options.group)
        .hint("start the ranks with mpirun, or with tegula run --backend mpi");
  }
  // Threads may make several groups at a time: each has tags of its own.
  const int tag = 2 * static_cast<int>(Hasher().add(options.group).result() % kGroupTags);
  await_members(parent, options, tag);
  auto backend = c10::make_intrusive<MpiBackend>(sub_communicator(parent, options.ranks, tag),
                                                 sub_communicator(parent, options.ranks, tag + 1),
                                                 options.index, options.size, options.timeout);
  return make_c10d_engine(
      backend, {"mpi", options.group, options.ranks, options.timeout, options.why_failed});
}

namespace {

// A copy of the communicator, so that our messages and the user's do not mix.
std::shared_ptr<void> duplicate(MPI_Comm communicator) {
  auto* copy = new MPI_Comm(MPI_COMM_NULL);
  check(MPI_Comm_dup(communicator, copy), "MPI_Comm_dup");
  return {copy, [](void* held) {
            auto* mine = static_cast<MPI_Comm*>(held);
            if (can_be_ended()) MPI_Comm_free(mine);
            delete mine;
          }};
}

std::uint64_t number_of_rank_0(std::uint64_t number, MPI_Comm communicator) {
  check(MPI_Bcast(&number, sizeof(number), MPI_BYTE, 0, communicator), "MPI_Bcast");
  return number;
}

// The same random number on all ranks: the name of their meeting.
std::uint64_t agreed_number(MPI_Comm communicator) {
  return number_of_rank_0(std::random_device()() * 0x1'0000'0001ULL ^ std::random_device()(),
                          communicator);
}

// Every rank's place among the ranks of my host; -1 elsewhere.
std::vector<int> places_on_host(MPI_Comm communicator, int size) {
  std::array<char, 512> mine{};
  host_identity().copy(mine.data(), mine.size() - 1);
  std::vector<std::array<char, 512>> all(static_cast<std::size_t>(size));
  check(MPI_Allgather(mine.data(), 512, MPI_BYTE, all.data(), 512, MPI_BYTE, communicator),
        "MPI_Allgather");
  std::vector<int> places;
  int next = 0;
  for (const auto& host : all) places.push_back(host == mine ? next++ : -1);
  return places;
}

}  // namespace
}  // namespace tegula::inner::comm

namespace tegula {

using namespace inner;

template <>
World World::from_mpi(MPI_Comm communicator, const WorldOptions& options) {
  comm::ensure_mpi();
  auto state = make_shared_at_home<comm::WorldState>();
  state->communicator = comm::duplicate(communicator);
  MPI_Comm_rank(communicator, &state->rank);
  MPI_Comm_size(communicator, &state->size);
  state->board_ranks = comm::places_on_host(communicator, state->size);
  state->local_rank = state->board_ranks[static_cast<std::size_t>(state->rank)];
  state->local_size = static_cast<int>(std::count_if(
      state->board_ranks.begin(), state->board_ranks.end(), [](int place) { return place >= 0; }));
  state->backend = options.backend;
  if (state->backend.empty() && state->local_size < state->size) state->backend = "mpi";
  state->timeout = comm::checked_timeout(options.timeout.value_or(comm::kDefaultTimeout));
  const std::string job = "mpi " + std::to_string(comm::agreed_number(communicator));
  state->share(shm::meet_on_host(job, state->local_rank, state->local_size, state->timeout));
  const std::uint64_t mine = SeedWord().value();
  const std::uint64_t word = comm::number_of_rank_0(mine, communicator);
  SeedWord().set(word);  // as in World::from_env
  return World(state);
}

}  // namespace tegula
