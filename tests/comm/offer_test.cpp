// Places that peers may write into.
#include "tegula/comm/shm/offer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/comm/ranks.h"

namespace tegula::inner::shm {
namespace offer_test {

// A group of one on a board for processes, with a block of 4 MiB.
struct OneMember {
  OneMember() {
    board->join(0);
    ChannelOptions options;
    options.name = "one";
    options.members = options.world_ranks = {0};
    options.blocks = blocks;
    channel.emplace(board, options);
  }
  std::shared_ptr<Board> board = Board::create(1);
  std::shared_ptr<Blocks> blocks = std::make_shared<Blocks>(board);
  std::optional<Channel> channel;
  std::byte* memory = blocks->allocate(std::size_t{4} << 20);
};

TEST(Offer, APlaceThatPeersMayStillWriteIntoDoesNotServeAgain) {
  OneMember one;
  const comm::Region place = comm::Region::whole(one.memory, 2 << 20);
  {
    const Offer offer(*one.channel, {&place, 1});
  }
  EXPECT_TRUE(one.blocks->is_retired(one.memory));
}

TEST(Offer, APlaceServesAgainIfNobodyWritesIntoIt) {
  OneMember one;
  const comm::Region place = comm::Region::whole(one.memory, 2 << 20);
  {
    Offer offer(*one.channel, {&place, 1});
    offer.withdraw();
  }
  EXPECT_FALSE(one.blocks->is_retired(one.memory));
  const comm::Region small = comm::Region::whole(one.memory, 100);
  {
    const Offer offer(*one.channel, {&small, 1});
  }
  EXPECT_FALSE(one.blocks->is_retired(one.memory));
}

// How far the boards of this process reach: results that come and go must not make them longer.
std::int64_t reach_of_boards() {
  std::int64_t reach = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const std::string file = std::filesystem::read_symlink(entry.path(), none);
    struct stat found{};
    if (file.find("memfd:tegula") != std::string::npos && stat(entry.path().c_str(), &found) == 0) {
      reach += found.st_size;
    }
  }
  return reach;
}

TEST(Offer, ResultsOfAnySizeServeAgainHoweverOftenTheyAreMade) {
  const std::vector<RankEnd> ends = run_processes(4, [](World& world) {
    const at::Tensor pieces = at::ones({1 << 19});  // 2 MiB, of which a rank gets half a MiB
    const at::Tensor large = at::ones({1 << 20});
    const auto call = [&] {
      world.group().all_to_all(pieces, 0, 0);
      world.group().all_gather(pieces, 0);
      world.group().reduce_scatter(large, 0, ReduceOp::Sum);
      world.group().all_reduce(large, ReduceOp::Sum);
      world.group().permute(pieces, {1, 2, 3, 0});
    };
    for (int i = 0; i < 3; ++i) call();
    world.group().barrier();
    const std::int64_t before = reach_of_boards();
    require(before > 0, "there is no board");
    for (int i = 0; i < 50; ++i) call();
    for (int i = 0; i < 1000; ++i) world.group().all_to_all(pieces, 0, 0);
    require(reach_of_boards() == before, "results take new memory again and again");
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

}  // namespace offer_test
}  // namespace tegula::inner::shm
