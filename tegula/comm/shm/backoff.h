// How a rank waits for a word of shared memory to change: it spins while every rank has a processor
// of its own, else lets others run; after a while it sleeps until woken.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "tegula/comm/shm/futex.h"

namespace tegula::inner::shm {

inline void relax_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Backoff {
 public:
  enum class Start { Spinning, Yielding };
  explicit Backoff(Start start) : step_(start == Start::Spinning ? 0 : kSpins) {}

  // Waits a little for `word` to differ from `seen`. True once in a while: time to look for what
  // else may have happened. `sleepers` counts who must be woken when the word changes.
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
            std::atomic<std::uint32_t>& sleepers) {
    if (step_ < kSpins) {
      ++step_;
      relax_processor();
      return false;
    }
    if (step_ < kSpins + kYields) {
      ++step_;
      sched_yield();
      return false;
    }
    sleepers.fetch_add(1);
    if (word.load() == seen) futex_wait(word, seen, kNap);
    sleepers.fetch_sub(1);
    return true;
  }

 private:
  static constexpr int kSpins = 300;
  static constexpr int kYields = 200;
  static constexpr std::chrono::milliseconds kNap{20};

  int step_;
};

}  // namespace tegula::inner::shm
