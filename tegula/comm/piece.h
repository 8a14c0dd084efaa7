// A piece of a tensor's memory: equally long runs of bytes at equal distances. A slice of a
// contiguous tensor along any dim is one. Its bytes are numbered in order, run after run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tegula::comm {

struct Piece {
  std::byte* base = nullptr;
  std::int64_t run = 0;     // bytes
  std::int64_t stride = 0;  // bytes from run to run
  std::int64_t runs = 0;

  static Piece whole(const void* memory, std::int64_t bytes) {
    return {static_cast<std::byte*>(const_cast<void*>(memory)), bytes, bytes, 1};
  }
  std::int64_t bytes() const { return run * runs; }
  bool is_contiguous() const { return runs <= 1 || run == stride; }
};

// Copies bytes [begin, end) of a piece out to flat memory, or in from it. Ranges that reach past
// the piece are cut to it.
void pack(const Piece& from, std::int64_t begin, std::int64_t end, std::byte* to);
void unpack(const std::byte* from, const Piece& to, std::int64_t begin, std::int64_t end);
// Copies bytes [begin, end) of one piece to the same bytes of another of equal size.
void copy(const Piece& from, const Piece& to, std::int64_t begin, std::int64_t end);
inline void copy(const Piece& from, const Piece& to) { copy(from, to, 0, from.bytes()); }

}  // namespace tegula::comm
