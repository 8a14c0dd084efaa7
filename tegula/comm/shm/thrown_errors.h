// The errors that a rank has thrown, where the other ranks of its host can read them.
//
// An error that all ranks meet is harmless: each throws it, and each may catch it. One that a
// single rank meets is not: the others go on and wait for it in vain. So nobody is told of an
// error; each rank counts its own, and one that waits for another looks whether that one has thrown
// more often than itself.
//
// Errors are counted per set of ranks: those that take part in the op that threw. What others do
// not take part in, they need not know of. And per lane (lane.h): threads of a rank throw in an
// order of their own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tegula::inner::shm {

// Lives in shared memory, zero-initialised. Its rank writes, one thread at a time; anybody reads.
class ThrownErrors {
 public:
  static constexpr std::size_t kMostRanks = 1024;  // on a host; those beyond count as in no set

  // `among`: ranks on the board that take part in what threw; none: it is not counted.
  void add(const std::vector<int>& among, std::uint64_t lane, std::string_view text);
  // Whether this rank has thrown more often than `mine`, rank `me`'s, on this lane and in a set
  // that `me` is in.
  bool is_ahead_of(const ThrownErrors& mine, int me, std::uint64_t lane) const;
  // The text of the last one, cut to the room that there is.
  std::string last() const;
  void clear();

 private:
  struct Set {
    std::atomic<std::uint64_t> thrown;  // 0: this place is free
    std::atomic<std::uint64_t> lane;
    std::array<std::atomic<std::uint64_t>, kMostRanks / 64> ranks;
    bool has(int rank) const;
    bool is(const std::array<std::uint64_t, kMostRanks / 64>& wanted) const;
  };

  std::array<Set, 16> sets_;            // the last one takes all that find no place
  std::atomic<std::uint32_t> version_;  // odd while the text is written
  std::array<std::atomic<char>, 1024> text_;
};

}  // namespace tegula::inner::shm
