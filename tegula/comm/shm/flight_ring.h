// The last calls of a rank, where all ranks of its host can read them: when something goes wrong,
// whoever notices can say what each of them was doing, those included that hang.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tegula/comm/call.h"

namespace tegula::inner::shm {

// Lives in shared memory, zero-initialised. Its rank writes, with any of its threads; anybody
// reads. What is read while it is written may be garbled, but is never outside of its place.
class FlightRing {
 public:
  static constexpr std::size_t kKept = 32;

  // Which record it is, to say later that the call has ended.
  std::uint64_t begin(const comm::Call& call, std::string_view group, std::string_view what_for);
  void end(std::uint64_t number);

  // The last `count` of them, a line each, the oldest first:
  //   all_reduce(f32[8, 16], sum), of tp, for aten::mm, 0.2 s ago, under way
  std::string to_string(std::size_t count) const;

 private:
  struct Record {
    std::atomic<std::uint64_t> number;  // counted from 1; 0: none, or being written
    std::atomic<std::uint32_t> has_ended;
    std::int64_t nanoseconds;  // of the steady clock, which is one for all processes of a host
    comm::Call call;
    std::array<char, 48> group;
    std::array<char, 48> what_for;
  };

  std::atomic<std::uint64_t> count_;
  std::array<Record, kKept> records_;
};

}  // namespace tegula::inner::shm
