// Where the draws of a rank stand: between the seed word in torch's generator, which is all that a
// saved state has of it, and the counts of the streams.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>

namespace tegula::inner {

// How many draws each stream made since the base.
using DrawCounts = std::map<std::uint64_t, std::uint64_t>;

// A stream's n-th draw since the base has the key base + n * step; after n draws of all streams
// together the word is base + n * step. So where there is one stream, the key is the word itself.
class DrawHistory {
 public:
  // Odd, so that it takes 2^64 draws to come back to a word.
  static constexpr std::uint64_t kStep = 0x9E37'79B9'7F4A'7C15;
  // So many times may draws pass from one stream to another before the first ones are forgotten.
  static constexpr std::size_t kMostRuns = std::size_t{1} << 14;

  explicit DrawHistory(std::uint64_t base, DrawCounts counts = {});

  std::uint64_t base() const { return base_; }
  const DrawCounts& counts() const { return counts_; }
  std::uint64_t word() const { return word_after(position_); }

  // Whether the word was left, and is not forgotten.
  bool knows(std::uint64_t word) const;
  // Goes to where it was left.
  void resume(std::uint64_t word);
  // The key of a stream's next draw.
  std::uint64_t next(std::uint64_t stream);

 private:
  // Draws of one stream, one after the other, before the position `end`.
  struct Run {
    std::uint64_t stream;
    std::uint64_t end;
  };
  std::uint64_t word_after(std::uint64_t draws) const { return base_ + draws * kStep; }
  std::uint64_t end() const { return runs_.empty() ? begin_ : runs_.back().end; }
  std::uint64_t position_of(std::uint64_t word) const;
  std::deque<Run>::iterator run_at(std::uint64_t position);
  void record(std::uint64_t stream);
  void forget_after(std::uint64_t position);

  std::uint64_t base_;
  DrawCounts counts_;       // at the position
  std::uint64_t position_;  // how many draws were made
  std::uint64_t begin_;     // where the first run begins
  std::deque<Run> runs_;    // may lead beyond the position, if an earlier word came back
};

// The histories of the words that came up last: a forked or recomputed part of a program may set a
// seed of its own before the outer word comes back.
class DrawHistories {
 public:
  static constexpr std::size_t kMost = 1024;

  // Of a word that is known, at that word; else a new one, with the word as its base.
  DrawHistory& at(std::uint64_t word);
  // Makes it the latest.
  void add(DrawHistory history);

 private:
  std::list<DrawHistory> latest_first_;
};

}  // namespace tegula::inner
