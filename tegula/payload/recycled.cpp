// The idea: blocks of one size in a list, each with the next one's place in its first bytes. A
// thread's variables with destructors go before those without, which may still be used by what goes
// after them. So the lists are of the second kind, and one of the first kind empties them.
#include "tegula/payload/recycled.h"

#include <array>
#include <new>

namespace tegula::inner {
namespace {

// A sanitizer sees no use of memory that has been freed if that is kept for the next object.
constexpr std::size_t kMostKept = TEGULA_RECYCLED_BLOCKS;

struct KeptBlocks {
  void* first = nullptr;
  std::size_t count = 0;
};

struct OfThread {
  std::array<KeptBlocks, kRecycledKinds> kept;
  bool is_emptied_at_end = false;
  bool has_ended = false;
};

constinit thread_local OfThread of_thread;

void* take(KeptBlocks& kept) {
  void* block = kept.first;
  kept.first = *static_cast<void**>(block);
  --kept.count;
  return block;
}

struct EmptyAtEnd {
  ~EmptyAtEnd() {
    of_thread.has_ended = true;
    for (KeptBlocks& kept : of_thread.kept) {
      while (kept.first) ::operator delete(take(kept));
    }
  }
};

void empty_at_end() {
  static thread_local const EmptyAtEnd at_end;
  static_cast<void>(at_end);
  of_thread.is_emptied_at_end = true;
}

}  // namespace

void* recycled_new(RecycledKind kind, std::size_t size) {
  KeptBlocks& kept = of_thread.kept[static_cast<std::size_t>(kind)];
  return kept.first ? take(kept) : ::operator new(size);
}

void recycled_delete(RecycledKind kind, void* memory) {
  OfThread& mine = of_thread;
  KeptBlocks& kept = mine.kept[static_cast<std::size_t>(kind)];
  if (mine.has_ended || kept.count >= kMostKept) return ::operator delete(memory);
  if (!mine.is_emptied_at_end) empty_at_end();
  *static_cast<void**>(memory) = kept.first;
  kept.first = memory;
  ++kept.count;
}

}  // namespace tegula::inner
