#include "tegula/comm/shm/board.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tegula/base/error.h"
#include "tests/comm/board_memory.h"

namespace tegula::inner::shm {
namespace board_test {

// A signal every few microseconds, as a profiler's timer sends it.
class Timer {
 public:
  Timer() {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, &before_);
    const itimerval often{{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Timer() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  struct sigaction before_{};
};

TEST(Board, SignalsDoNotKeepItFromGettingMemory) {
  const Timer timer;
  const std::shared_ptr<Board> board = Board::create(1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_NO_THROW(board->free(board->allocate(std::size_t{64} << 20)));
  }
}

TEST(Board, MoreThanTheHostHasIsRefusedBeforeAnyOfItIsTaken) {
  const std::shared_ptr<Board> board = Board::create(1);
  const std::int64_t before = memory_of(*board);
  EXPECT_THROW(board->allocate(std::size_t{1} << 48), CommError);
  EXPECT_EQ(memory_of(*board), before);
}

TEST(Board, AnAreaTakesMemoryWhereItIsReservedOnly) {
  const std::shared_ptr<Board> board = Board::create(1);
  const std::int64_t before = memory_of(*board);
  const Area area = board->allocate(std::size_t{1} << 30, 8192);
  EXPECT_LE(memory_of(*board) - before, 16 << 10);
  board->reserve(area, 1 << 20, 1 << 20);
  area.memory[(2 << 20) - 1] = std::byte{1};
  EXPECT_GE(memory_of(*board) - before, 1 << 20);
  EXPECT_LE(memory_of(*board) - before, (1 << 20) + (16 << 10));
  board->free(area);
  EXPECT_EQ(memory_of(*board), before);
}

TEST(Board, AForkedChildNeitherLeavesNorFreesForItsParent) {
  const std::shared_ptr<Board> board = Board::create(1);
  board->join(0);
  const Area area = board->allocate(4096);
  std::memset(area.memory, 7, area.bytes);
  const pid_t child = fork();
  if (child == 0) {
    board->leave(0);
    board->free(area);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_NE(board->presence(0), Presence::Left);
  EXPECT_EQ(area.memory[0], std::byte{7});
}

}  // namespace board_test
}  // namespace tegula::inner::shm
