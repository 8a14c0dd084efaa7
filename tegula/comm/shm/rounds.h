// What the collectives of collectives.cpp and coalesced.cpp have in common: how slots are divided,
// from which sizes on another way pays, and how members read each other's memory.
#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdint>

#include "tegula/comm/shm/blocks.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::inner::shm {

using Bytes = std::int64_t;
// What is combined, in the order of the ranks.
using Sources = c10::SmallVector<const void*, 8>;

constexpr Bytes kSlot = static_cast<Bytes>(Channel::kSlotBytes);
// Below this a round through the slots is cheaper than two meetings.
constexpr Bytes kWorthShowing = 16 << 10;
// Up to this size every rank of more than two reduces the whole tensor by itself; two ranks do so
// with whatever fits in a slot.
constexpr Bytes kReducedTogether = 32 << 10;
constexpr Bytes kLine = 64;

inline Bytes round_up(Bytes bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Room in a slot for each of `parts` destinations.
inline Bytes window_for(int parts) { return kSlot / std::max(parts, 1) / kLine * kLine; }

// Where in the slot of `from` the part for `to` stands: its own part takes no room.
inline Bytes part_of(int from, int to, Bytes window) { return (to < from ? to : to - 1) * window; }

// The same in my slot.
inline std::byte* part_for(Channel& channel, int to, Bytes window) {
  return channel.my_slot((channel.size() - 1) * window) + part_of(channel.index(), to, window);
}

// Posts a round of a call; the first one compares fingerprints.
inline void meet(Channel& channel, Bytes begin) {
  if (begin == 0) {
    channel.meet_and_check();
  } else {
    channel.meet();
  }
}

template <class Visit>
void for_each_peer(const Channel& channel, Visit visit) {
  for (int step = 1; step < channel.size(); ++step) {
    visit((channel.index() + step) % channel.size());
  }
}

// In a call where members read each other's memory: nobody leaves it, not even by an error, while
// another one may still read.
class ExposedMemory {
 public:
  explicit ExposedMemory(Channel& channel) : channel_(channel) {}
  ~ExposedMemory() {
    if (!closed_) channel_.wait_for_readers();
  }
  ExposedMemory(const ExposedMemory&) = delete;
  ExposedMemory& operator=(const ExposedMemory&) = delete;

  template <class Read>
  void read(Read read) {
    channel_.begin_reading();
    try {
      read();
    } catch (...) {
      // In this order: who has not begun to read my memory shall not begin any more.
      channel_.break_by_current_error();
      channel_.end_reading();
      throw;
    }
    channel_.end_reading();
    channel_.advance();
  }
  void close() {
    channel_.meet();
    channel_.advance();
    closed_ = true;
  }

 private:
  Channel& channel_;
  bool closed_ = false;
};

}  // namespace tegula::inner::shm
