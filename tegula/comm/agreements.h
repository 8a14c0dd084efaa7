// What ranks have to agree on though nobody has told them: plain tensors that count as replicated,
// random draws, that an op has thrown. Each rank notes a hash of it. All hashes so far join the
// fingerprint of the next call on a group whose members take part (shm), or are compared before it
// (other engines), so that a difference is an error there, and nothing is sent for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/comm/world.h"

namespace tegula::inner::comm {

// All these ranks of the world, mine among them, note the same here and now. `what` is for errors:
// "a plain operand of aten::add.Tensor".
void agree(const World& world, const std::vector<std::int64_t>& ranks, std::uint64_t hash,
           std::string_view what);

// What the members of a group have noted alike.
struct Agreed {
  std::uint64_t notes = 0;  // how many there were in the world when it was looked up
  std::uint64_t hash = 0;
  std::uint64_t errors = 0;  // how many of the notes are
  std::string latest;        // of what was noted since the look-up before; an error by itself
};

// Of one rank. Any thread.
class Agreements {
 public:
  std::uint64_t notes() const { return notes_.load(std::memory_order_relaxed); }
  void note(const std::vector<std::int64_t>& ranks, std::uint64_t hash, std::string_view what) {
    note(ranks, hash, what, Kind::Value);
  }
  // This rank has thrown in an op in which these ranks take part. Ranks that agree throw alike.
  void note_error(const std::vector<std::int64_t>& ranks, std::string_view text) {
    note(ranks, kErrorHash, text, Kind::Error);
  }
  // Of all sets of ranks that these belong to, on this thread's lane (lane.h). `before` is an
  // earlier answer.
  Agreed among(const std::vector<int>& ranks, const Agreed& before);
  void clear();

 private:
  struct Set {
    std::string lane;                 // on which it was noted
    std::vector<std::int64_t> ranks;  // in order
    std::uint64_t hash = 0;
    std::uint64_t errors = 0;
    bool covers(const std::vector<int>& members) const;
  };
  enum class Kind { Value, Error };
  struct Note {
    std::size_t set;
    std::string what;
    Kind kind;
  };
  static constexpr std::size_t kNamed = 3;  // notes that an error names
  static constexpr std::uint64_t kErrorHash = 0x6572'726f'7221ULL;

  void note(const std::vector<std::int64_t>& ranks, std::uint64_t hash, std::string_view what,
            Kind kind);

  std::atomic<std::uint64_t> notes_ = 0;
  std::mutex mutex_;
  std::vector<Set> sets_;
  std::deque<Note> latest_;  // the last one is number notes_ - 1
};

}  // namespace tegula::inner::comm
