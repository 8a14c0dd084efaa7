#include "tegula/comm/waiting.h"

#include <atomic>

namespace tegula::inner::comm {
namespace {

std::atomic<LetGoOfLock> lock_of_threads = nullptr;

}  // namespace

void set_lock_of_threads(LetGoOfLock let_go) { lock_of_threads.store(let_go); }

std::unique_ptr<LetGo> let_go_while_waiting() {
  const LetGoOfLock let_go = lock_of_threads.load(std::memory_order_relaxed);
  return let_go ? let_go() : nullptr;
}

}  // namespace tegula::inner::comm
