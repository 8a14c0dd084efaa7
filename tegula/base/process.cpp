// The number is kept in a page that the kernel wipes in every child.
#include "tegula/base/process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

using Word = std::atomic<int>;

// Null if the kernel is too old for that.
Word* word_wiped_by_fork() {
  void* page =
      mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, sizeof(Word), MADV_WIPEONFORK) == 0) return new (page) Word(0);
  munmap(page, sizeof(Word));
  return nullptr;
}

}  // namespace

int current_process() {
  static Word* const word = word_wiped_by_fork();
  if (word == nullptr) return getpid();
  int id = word->load(std::memory_order_relaxed);
  if (id == 0) {
    id = getpid();
    word->store(id, std::memory_order_relaxed);
  }
  return id;
}

void HomeProcess::refuse() {
  throw UsageError("a forked child has no part in its parent's world")
      .hint("call on the world in the process that made it; fork before, or start a new program");
}

}  // namespace tegula::inner
