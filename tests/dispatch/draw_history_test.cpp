#include "tegula/random/draw_history.h"

#include <gtest/gtest.h>

#include "tests/placement/random.h"

namespace tegula::inner {
namespace draw_history_test {

constexpr std::uint64_t kBase = 42;

// The word after so many draws, or the key of a stream's draw of this number.
std::uint64_t word(std::uint64_t draws, std::uint64_t base = kBase) {
  return base + draws * DrawHistory::kStep;
}

// Which stream draws at a position of the program.
std::uint64_t scripted_stream(std::uint64_t position) { return (position * position / 3) % 4; }

DrawCounts scripted_counts(std::uint64_t position) {
  DrawCounts counts;
  for (std::uint64_t i = 0; i < position; ++i) ++counts[scripted_stream(i)];
  return counts;
}

TEST(DrawHistory, TheKeysOfAnOnlyStreamAreTheWords) {
  DrawHistory history(kBase);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(history.word(), word(i));
    EXPECT_EQ(history.next(7), word(i));
  }
  EXPECT_EQ(history.counts(), (DrawCounts{{7, 5}}));
}

TEST(DrawHistory, StreamsCountForThemselves) {
  DrawHistory history(kBase);
  EXPECT_EQ(history.next(1), word(0));
  EXPECT_EQ(history.next(2), word(0));
  EXPECT_EQ(history.next(1), word(1));
  EXPECT_EQ(history.word(), word(3));
}

TEST(DrawHistoryLaw, EveryWordBringsBackTheCountsOfThen) {
  Random random(1);
  DrawHistory history(kBase);
  std::uint64_t position = 0;
  std::uint64_t longest = 0;
  for (int i = 0; i < 3000; ++i) {
    if (random.one_in(8)) {
      position = static_cast<std::uint64_t>(random.between(0, static_cast<int>(longest)));
      ASSERT_TRUE(history.knows(word(position)));
      history.resume(word(position));
    }
    ASSERT_EQ(history.word(), word(position));
    ASSERT_EQ(history.counts(), scripted_counts(position));
    const std::uint64_t stream = scripted_stream(position);
    ASSERT_EQ(history.next(stream), word(scripted_counts(position)[stream]));
    longest = std::max(longest, ++position);
  }
  EXPECT_FALSE(history.knows(word(longest + 1)));
  EXPECT_FALSE(history.knows(kBase - 1));
}

TEST(DrawHistory, AnotherContinuationReplacesTheOneBefore) {
  DrawHistory history(kBase);
  for (std::uint64_t stream : {1, 1, 2, 2, 2, 1}) history.next(stream);
  history.resume(word(3));
  history.next(5);
  EXPECT_EQ(history.counts(), (DrawCounts{{1, 2}, {2, 1}, {5, 1}}));
  EXPECT_FALSE(history.knows(word(5)));
  history.resume(word(3));
  EXPECT_EQ(history.counts(), (DrawCounts{{1, 2}, {2, 1}}));
  history.resume(word(0));
  EXPECT_EQ(history.counts(), DrawCounts{});
}

TEST(DrawHistory, BeginsAnywhere) {
  DrawHistory history(kBase, {{1, 3}, {2, 4}});
  EXPECT_EQ(history.word(), word(7));
  EXPECT_FALSE(history.knows(word(6)));
  EXPECT_EQ(history.next(2), word(4));
  EXPECT_EQ(history.next(3), word(0));
}

TEST(DrawHistory, ForgetsItsBeginningWhenStreamsHaveTakenTurnsOften) {
  DrawHistory history(kBase);
  for (std::uint64_t i = 0; i < DrawHistory::kMostRuns + 10; ++i) history.next(i % 2);
  EXPECT_FALSE(history.knows(word(9)));
  EXPECT_TRUE(history.knows(word(10)));
  history.resume(word(11));
  EXPECT_EQ(history.counts(), (DrawCounts{{0, 6}, {1, 5}}));
}

TEST(DrawHistories, AWordOfAnEarlierBaseComesBack) {
  DrawHistories histories;
  DrawHistory& history = histories.at(kBase);
  for (std::uint64_t stream : {1, 2, 2}) history.next(stream);
  EXPECT_EQ(histories.at(kBase).counts(), DrawCounts{});
  EXPECT_EQ(histories.at(word(3)).counts(), (DrawCounts{{1, 1}, {2, 2}}));
  EXPECT_EQ(histories.at(99).counts(), DrawCounts{});
  histories.at(99).next(1);
  EXPECT_EQ(histories.at(word(2)).counts(), (DrawCounts{{1, 1}, {2, 1}}));
  EXPECT_EQ(histories.at(word(1, 99)).counts(), (DrawCounts{{1, 1}}));
}

TEST(DrawHistories, TheOldestIsForgotten) {
  DrawHistories histories;
  histories.at(kBase).next(1);
  histories.at(word(1)).next(2);
  for (std::uint64_t seed = 100; seed < 100 + DrawHistories::kMost; ++seed) histories.at(seed);
  EXPECT_EQ(histories.at(word(2)).base(), word(2));
}

}  // namespace draw_history_test
}  // namespace tegula::inner
