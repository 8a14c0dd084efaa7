// Ranks as threads of this process.
#include <ATen/Parallel.h>

#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/bridge/seed_word.h"
#include "tegula/comm/thread_seed.h"
#include "tegula/comm/world.h"
#include "tegula/comm/world_state.h"

namespace tegula {

using namespace inner;

using comm::WorldState;

namespace {

// Throws what `failure` holds, with the rank that met it.
template <class Family>
[[noreturn]] void throw_of_rank(const Family& error, int rank) {
  throw Family(error).fact("rank", std::to_string(rank));
}

[[noreturn]] void rethrow_of_rank(const std::exception_ptr& failure, int rank) {
  try {
    std::rethrow_exception(failure);
  } catch (const UsageError& error) {
    throw_of_rank(error, rank);
  } catch (const CommError& error) {
    throw_of_rank(error, rank);
  } catch (const InternalError& error) {
    throw_of_rank(error, rank);
  } catch (const std::exception& error) {
    std::throw_with_nested(
        std::runtime_error("rank " + std::to_string(rank) + ": " + error.what()));
  } catch (...) {
    std::throw_with_nested(
        std::runtime_error("rank " + std::to_string(rank) + ": " + sentence_of(failure)));
  }
}

World thread_world(const std::shared_ptr<shm::Board>& board, int rank,
                   const WorldOptions& options) {
  auto state = make_shared_at_home<WorldState>();
  state->rank = state->local_rank = rank;
  state->size = state->local_size = board->ranks();
  state->backend = options.backend;
  state->timeout = comm::checked_timeout(options.timeout.value_or(comm::kDefaultTimeout));
  board->join(rank);
  board->set_timeout(state->timeout);
  state->board = board;
  state->board_ranks = comm::counted_up(board->ranks());
  return World(state);
}

}  // namespace

void run_ranks(int ranks, const std::function<void(World&)>& body, const WorldOptions& options) {
  if (ranks < 1)
    throw UsageError("cannot run " + std::to_string(ranks) + " ranks").hint("one or more");
  const std::shared_ptr<shm::Board> board = shm::Board::for_threads(ranks);
  const std::uint64_t seed = SeedWord().value();
  std::mutex mutex;
  std::exception_ptr failure;
  int failed_rank = -1;
  // In a handler: ends the calls of the other ranks.
  const auto fail = [&](int rank, const World* world) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure) {
        failure = std::current_exception();
        failed_rank = rank;
      }
    }
    const std::string reason =
        "rank " + std::to_string(rank) + " failed: " + sentence_of(std::current_exception());
    if (world != nullptr) world->abort(reason);
    // it may have failed before it had a world, or while others begin another epoch
    for (std::uint32_t epoch : {0, 1}) board->fault(epoch).raise(CommError(reason));
  };
  const auto be_rank = [&](int rank) {
    at::set_num_threads(1);
    std::optional<World> world;
    try {
      world = thread_world(board, rank, options);
      if (ranks > 1) world->part<comm::ThreadSeed>().word = seed;
      body(*world);
    } catch (...) {
      fail(rank, world ? &*world : nullptr);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      threads.push_back(comm::new_thread([&, rank] { be_rank(rank); }));
    } catch (...) {
      fail(rank, nullptr);
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) rethrow_of_rank(failure, failed_rank);
}

}  // namespace tegula
