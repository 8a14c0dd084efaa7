#include "tegula/base/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace tegula::inner {
namespace philox_test {

// The vectors that the authors publish with their library.
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) ==
              PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                         {0xffffffff, 0xffffffff}) ==
              PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});

TEST(Philox, TheDigitsOfPiGiveThePublishedBlock) {
  const PhiloxBlock block =
      philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  EXPECT_EQ(block, (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ZerosAndOnesGiveThePublishedBlocksAsWords) {
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(random_bits(0, 0, 0), (RandomBits{0xe169c58d6627e8d5, 0x9b00dbd8bc57ac4c}));
  EXPECT_EQ(random_bits(ones, ones, ones), (RandomBits{0x41c83b0e408f276d, 0x6d5451fda20bc7c6}));
}

TEST(Philox, EveryBitOfSeedAndCounterMatters) {
  std::set<std::uint64_t> seen{random_bits(0, 0, 0).first};
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t one = std::uint64_t{1} << bit;
    seen.insert(random_bits(one, 0, 0).first);
    seen.insert(random_bits(0, one, 0).first);
    seen.insert(random_bits(0, 0, one).first);
  }
  EXPECT_EQ(seen.size(), 1U + 3U * 64U);
}

TEST(Philox, OneBitOfTheCounterFlipsHalfOfTheBlock) {
  // 128 bits x 64 pairs, each flipped with probability 1/2: 4096 +- 5 standard deviations of 45.
  int flipped = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const RandomBits a = random_bits(7, 11, 13);
    const RandomBits b = random_bits(7, 11 ^ (std::uint64_t{1} << bit), 13);
    flipped += std::popcount(a.first ^ b.first) + std::popcount(a.second ^ b.second);
  }
  EXPECT_NEAR(flipped, 4096, 5 * 45.3);
}

}  // namespace philox_test
}  // namespace tegula::inner
