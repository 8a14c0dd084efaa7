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

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
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

// Set once a call failed. MPI belongs to the process, and so does its state: what waits for the
// other ranks (ending it, freeing a communicator) would then hang.
std::atomic<bool>& is_lost() {
  static std::atomic<bool> lost = false;
  return lost;
}

bool can_be_ended() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag == 0 && !is_lost();
}

// Without this mpirun ends the other ranks.
void finalize() {
  if (can_be_ended()) MPI_Finalize();
}

// MPI can be started once in a process; if we do, it ends with the process.
void ensure_mpi() {
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

// Requests under way.
class MpiWork final : public c10d::Work {
 public:
  MpiWork(c10d::OpType type, std::vector<MPI_Request> requests, std::vector<at::Tensor> kept,
          std::chrono::milliseconds timeout)
      : c10d::Work(-1, type),
        requests_(std::move(requests)),
        kept_(std::move(kept)),
        timeout_(timeout) {}

  bool isCompleted() override { return test(); }
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return kept_; }

  bool wait(std::chrono::milliseconds) override {
    const Clock::time_point deadline = Clock::now() + timeout_;
    for (int i = 0; !test(); ++i) {
      if (i > 100) sched_yield();
      if (i % 64 == 63 && Clock::now() > deadline) {
        is_lost() = true;
        throw std::runtime_error("no answer within " + std::to_string(timeout_.count()) + " ms");
      }
    }
    return true;
  }

 private:
  bool test() {
    const std::lock_guard<std::mutex> lock(mutex_);
    int flag = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    return flag != 0;
  }

  std::vector<MPI_Request> requests_;
  std::vector<at::Tensor> kept_;
  std::chrono::milliseconds timeout_;
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
    Requests requests;
    auto* received = static_cast<char*>(output.data_ptr());
    auto* sent = static_cast<char*>(input.data_ptr());
    for (int rank = 0; rank < getSize(); ++rank) {
      const std::int64_t bytes = part(output, output_splits, rank);
      start(requests, Direction::Receive, received, bytes, rank);
      received += bytes;
    }
    for (int rank = 0; rank < getSize(); ++rank) {
      const std::int64_t bytes = part(input, input_splits, rank);
      start(requests, Direction::Send, sent, bytes, rank);
      sent += bytes;
    }
    return work(c10d::OpType::ALLTOALL_BASE, std::move(requests), {output, input}, options.timeout);
  }

  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input,
                             const c10d::AllgatherOptions& options) override {
    Requests requests;
    const auto bytes = static_cast<std::int64_t>(input.nbytes());
    for (int rank = 0; rank < getSize(); ++rank) {
      start(requests, Direction::Receive, static_cast<char*>(output.data_ptr()) + rank * bytes,
            bytes, rank);
    }
    for (int rank = 0; rank < getSize(); ++rank) {
      start(requests, Direction::Send, static_cast<char*>(input.data_ptr()), bytes, rank);
    }
    return work(c10d::OpType::_ALLGATHER_BASE, std::move(requests), {output, input},
                options.timeout);
  }

  WorkHandle broadcast(std::vector<at::Tensor>& tensors,
                       const c10d::BroadcastOptions& options) override {
    Requests requests;
    const at::Tensor& tensor = tensors.at(0);
    auto* memory = static_cast<char*>(tensor.data_ptr());
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    for (std::int64_t begin = 0; begin < bytes; begin += kLargestMessage) {
      requests.push_back(MPI_REQUEST_NULL);
      check(
          MPI_Ibcast(memory + begin, static_cast<int>(std::min(kLargestMessage, bytes - begin)),
                     MPI_BYTE, static_cast<int>(options.rootRank), collectives_, &requests.back()),
          "MPI_Ibcast");
    }
    return work(c10d::OpType::BROADCAST, std::move(requests), tensors, options.timeout);
  }

  WorkHandle barrier(const c10d::BarrierOptions& options) override {
    Requests requests{MPI_REQUEST_NULL};
    check(MPI_Ibarrier(collectives_, requests.data()), "MPI_Ibarrier");
    return work(c10d::OpType::BARRIER, std::move(requests), {}, options.timeout);
  }

  WorkHandle send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return message(c10d::OpType::SEND, Direction::Send, tensors, to, tag);
  }
  WorkHandle recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return message(c10d::OpType::RECV, Direction::Receive, tensors, from, tag);
  }

 private:
  using Requests = std::vector<MPI_Request>;
  enum class Direction { Send, Receive };

  std::int64_t part(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                    int rank) const {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    if (splits.empty()) return bytes / getSize();
    const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    return rows == 0 ? 0 : splits[static_cast<std::size_t>(rank)] * (bytes / rows);
  }

  void start(Requests& requests, Direction direction, char* memory, std::int64_t bytes, int peer) {
    start(requests, direction, memory, bytes, peer, kExchangeTag, collectives_);
  }

  static void start(Requests& requests, Direction direction, char* memory, std::int64_t bytes,
                    int peer, int tag, MPI_Comm communicator) {
    for (std::int64_t begin = 0; begin < bytes; begin += kLargestMessage) {
      const int count = static_cast<int>(std::min(kLargestMessage, bytes - begin));
      requests.push_back(MPI_REQUEST_NULL);
      if (direction == Direction::Send) {
        check(MPI_Isend(memory + begin, count, MPI_BYTE, peer, tag, communicator, &requests.back()),
              "MPI_Isend");
      } else {
        check(MPI_Irecv(memory + begin, count, MPI_BYTE, peer, tag, communicator, &requests.back()),
              "MPI_Irecv");
      }
    }
  }

  WorkHandle message(c10d::OpType type, Direction direction, std::vector<at::Tensor>& tensors,
                     int peer, int tag) {
    Requests requests;
    const at::Tensor& tensor = tensors.at(0);
    start(requests, direction, static_cast<char*>(tensor.data_ptr()),
          static_cast<std::int64_t>(tensor.nbytes()), peer, tag, messages_);
    return work(type, std::move(requests), tensors, c10d::kUnsetTimeout);
  }

  WorkHandle work(c10d::OpType type, Requests requests, std::vector<at::Tensor> kept,
                  std::chrono::milliseconds timeout) const {
    if (timeout == c10d::kUnsetTimeout) timeout = timeout_;
    return c10::make_intrusive<MpiWork>(type, std::move(requests), std::move(kept), timeout);
  }

  MPI_Comm collectives_;
  MPI_Comm messages_;
  std::chrono::milliseconds timeout_;
};

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

std::unique_ptr<Engine> make_mpi_engine(const EngineOptions& options) {
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
  auto backend = c10::make_intrusive<MpiBackend>(sub_communicator(parent, options.ranks, 1),
                                                 sub_communicator(parent, options.ranks, 2),
                                                 options.index, options.size, options.timeout);
  return make_c10d_engine(backend, {"mpi", options.group, options.timeout});
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
  auto state = std::make_shared<comm::WorldState>();
  state->communicator = comm::duplicate(communicator);
  MPI_Comm_rank(communicator, &state->rank);
  MPI_Comm_size(communicator, &state->size);
  state->board_ranks = comm::places_on_host(communicator, state->size);
  state->local_rank = state->board_ranks[static_cast<std::size_t>(state->rank)];
  state->local_size = static_cast<int>(std::count_if(
      state->board_ranks.begin(), state->board_ranks.end(), [](int place) { return place >= 0; }));
  state->backend = options.backend;
  if (state->backend.empty() && state->local_size < state->size) state->backend = "mpi";
  state->timeout = options.timeout.value_or(comm::kDefaultTimeout);
  const std::string job = "mpi " + std::to_string(comm::agreed_number(communicator));
  state->share(shm::meet_on_host(job, state->local_rank, state->local_size, state->timeout));
  const std::uint64_t mine = SeedWord().value();
  const std::uint64_t word = comm::number_of_rank_0(mine, communicator);
  SeedWord().set(word);  // as in World::from_env
  return World(state);
}

}  // namespace tegula
