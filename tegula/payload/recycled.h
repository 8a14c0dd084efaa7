// Recycled: memory of objects that nearly every op makes and drops. A thread keeps what it has
// freed last, and takes it again; what it keeps goes when the thread ends.
#pragma once

#include <cstddef>

namespace tegula::inner {

enum class RecycledKind : std::size_t { Outer, Payload };
constexpr std::size_t kRecycledKinds = 2;

void* recycled_new(RecycledKind kind, std::size_t size);
void recycled_delete(RecycledKind kind, void* memory);

// To be derived from by the one class of that kind.
template <RecycledKind kind>
class Recycled {
 public:
  static void* operator new(std::size_t size) { return recycled_new(kind, size); }
  static void operator delete(void* memory) { recycled_delete(kind, memory); }
};

}  // namespace tegula::inner
