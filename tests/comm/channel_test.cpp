// A group's shared memory by itself: what it takes, and errors in the middle of a call.
#include "tegula/comm/shm/channel.h"

#include <gtest/gtest.h>

#include <latch>
#include <new>
#include <optional>
#include <thread>

#include "tegula/comm/shm/rounds.h"
#include "tests/comm/board_memory.h"

namespace tegula::inner::shm {
namespace channel_test {

using namespace std::chrono_literals;

ChannelOptions member(int index, int size) {
  ChannelOptions options;
  options.name = "group";
  for (int rank = 0; rank < size; ++rank) options.members.push_back(rank);
  options.world_ranks = options.members;
  options.index = index;
  return options;
}

TEST(Channel, AGroupOf256RanksTakesMemoryAsItIsUsed) {
  const std::shared_ptr<Board> board = Board::create(256);
  const std::int64_t before = memory_of(*board);
  Channel channel(board, member(0, 256));
  EXPECT_LE(memory_of(*board) - before, 1 << 20);
  channel.reserve_envelopes(0, 255);
  channel.my_slot(4000);
  channel.my_counts();
  channel.my_destinations();
  EXPECT_LE(memory_of(*board) - before, (1 << 20) + (64 << 10));
}

TEST(Channel, TheLastMemberGivesTheMemoryBack) {
  const std::shared_ptr<Board> board = Board::create(2);
  const std::int64_t before = memory_of(*board);
  std::optional<Channel> first(std::in_place, board, member(0, 2));
  std::optional<Channel> second(std::in_place, board, member(1, 2));
  first->my_slot(Channel::kSlotBytes)[100] = std::byte{1};
  first.reset();
  EXPECT_GE(memory_of(*board) - before, static_cast<std::int64_t>(Channel::kSlotBytes));
  second.reset();
  EXPECT_LE(memory_of(*board) - before, 4096);  // the board's log
}

// What the two members of a group of threads throw.
std::vector<std::string> errors_of(const std::function<void(Channel&)>& body) {
  const std::shared_ptr<Board> board = Board::for_threads(2);
  std::vector<std::string> errors(2);
  std::latch is_over(2);
  std::vector<std::thread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      board->join(index);
      Channel channel(board, member(index, 2));
      try {
        body(channel);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(index)] = error.what();
      }
      is_over.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Channel, AnErrorWhileAMemberReadsEndsTheCallOnAll) {
  const std::vector<std::string> errors = errors_of([](Channel& channel) {
    channel.open(Call(Kind::Barrier), 0);
    ExposedMemory exposed(channel);
    channel.meet_and_check();
    exposed.read([&] {
      if (channel.index() == 1) throw std::bad_alloc();
    });
    exposed.close();
  });
  EXPECT_EQ(errors[1], "std::bad_alloc");
  EXPECT_EQ(errors[0],
            "tegula: rank 1 failed in the middle of a call\n"
            "  group   group, ranks [0, 1]\n"
            "  call    barrier(), call 0\n"
            "  because std::bad_alloc\n"
            "  hint    look at that rank's output");
}

TEST(Channel, NobodyWaitsForAReaderThatIsGone) {
  const std::shared_ptr<Board> board = Board::for_threads(2);
  board->join(0);
  board->join(1);
  Channel first(board, member(0, 2));
  Channel second(board, member(1, 2));
  second.begin_reading();
  board->leave(1);
  first.wait_for_readers();
}

}  // namespace channel_test
}  // namespace tegula::inner::shm
