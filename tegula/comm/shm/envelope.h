// The shared memory of point-to-point messages: for every ordered pair of ranks two envelopes, used
// in turn. The protocol is that of messages.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tegula/comm/call.h"

namespace tegula::inner::shm {

// A part of a message, followed in memory by its bytes. The sender owns it while it is free, the
// receiver while it is full.
struct alignas(64) Envelope {
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kFull = 1;

  std::atomic<std::uint32_t> state;
  std::uint32_t bytes;  // in this part
  comm::Call call;      // the sender's

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(this + 1); }

  // Room for data: less in large groups, so that n * n pairs stay affordable.
  static std::size_t room(int ranks) {
    constexpr std::size_t kMost = std::size_t{64} << 10;
    constexpr std::size_t kLeast = std::size_t{4} << 10;
    return std::clamp((std::size_t{256} << 10) / static_cast<std::size_t>(ranks) / 64 * 64, kLeast,
                      kMost);
  }
  static std::size_t stride(int ranks) { return sizeof(Envelope) + room(ranks); }
};

}  // namespace tegula::inner::shm
