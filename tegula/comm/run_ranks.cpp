// Ranks as threads of this process.
#include <ATen/Parallel.h>

#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tegula/base/error.h"
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
  }
}

std::string sentence_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.sentence();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  } catch (...) {
    return "something that is no exception was thrown";
  }
}

World thread_world(const std::shared_ptr<shm::Board>& board, int rank,
                   const WorldOptions& options) {
  auto state = std::make_shared<WorldState>();
  state->rank = state->local_rank = rank;
  state->size = state->local_size = board->ranks();
  state->backend = options.backend;
  state->timeout = options.timeout.value_or(comm::kDefaultTimeout);
  board->join(rank);
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
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      std::optional<World> world;
      try {
        world = thread_world(board, rank, options);
        if (ranks > 1) world->part<comm::ThreadSeed>().word = seed;
        body(*world);
      } catch (...) {
        {
          const std::lock_guard<std::mutex> lock(mutex);
          if (!failure) {
            failure = std::current_exception();
            failed_rank = rank;
          }
        }
        const std::string sentence = sentence_of(std::current_exception());
        const std::string reason = "rank " + std::to_string(rank) + " failed: " + sentence;
        if (world) world->abort(reason);
        board->fault().raise(CommError(reason));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) rethrow_of_rank(failure, failed_rank);
}

}  // namespace tegula
