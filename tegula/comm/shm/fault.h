// Why a group (or a whole world) is broken: an error that one rank wrote into shared memory and
// that every rank throws from then on.
#pragma once

#include <atomic>
#include <cstdint>

#include "tegula/base/error.h"

namespace tegula::inner::shm {

// Lives in shared memory, zero-initialised. The first raise() wins.
class Fault {
 public:
  bool raised() const { return state_.load() != kNone; }

  // Keeps `error` unless one is there already; tells whether it did. Any thread of any rank.
  bool raise(const CommError& error);

  // The kept error. Only after raised(); waits a moment for a rank that is still writing it.
  CommError error() const;

  // While nobody raises or reads it.
  void clear() { state_.store(kNone); }

 private:
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kWriting = 1;
  static constexpr std::uint32_t kWritten = 2;
  static constexpr std::size_t kCapacity = 4000;

  std::atomic<std::uint32_t> state_;
  char text_[kCapacity];
};

}  // namespace tegula::inner::shm
