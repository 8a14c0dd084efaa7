// Places that peers may write into.
#include "tegula/comm/shm/offer.h"

#include <gtest/gtest.h>

namespace tegula::inner::shm {
namespace {

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

}  // namespace
}  // namespace tegula::inner::shm
