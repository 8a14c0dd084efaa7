// What the handles of one world read often, without a lock: the head of WorldState.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tegula::inner::comm {

struct WorldHead {
  // Types beyond these many are looked up in WorldState::parts.
  static constexpr std::size_t kSlots = 64;

  int rank = 0;
  int size = 1;
  std::atomic<std::uint32_t> epoch = 0;            // counts recoveries
  std::array<std::atomic<void*>, kSlots> slots{};  // null: the part was not asked for yet
};

// Counts up, process-wide.
std::size_t next_slot();

// Where the part of this type stands in all worlds.
template <class T>
std::size_t slot_of() {
  static const std::size_t slot = next_slot();
  return slot;
}

}  // namespace tegula::inner::comm
