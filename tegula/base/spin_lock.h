// A lock for what takes some nanoseconds: a waiter gives its core away instead of sleeping.
#pragma once

#include <atomic>
#include <thread>

namespace tegula::inner {

// For std::lock_guard.
class SpinLock {
 public:
  void lock() {
    while (is_held_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { is_held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> is_held_ = false;
};

}  // namespace tegula::inner
