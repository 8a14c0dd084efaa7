#include "tegula/comm/piece.h"

#include <algorithm>
#include <cstring>

namespace tegula::comm {
namespace {

// Calls visit(memory, bytes) for the stretches of contiguous memory that make up [begin, end).
template <class Visit>
void for_each_stretch(const Piece& piece, std::int64_t begin, std::int64_t end, Visit visit) {
  end = std::min(end, piece.bytes());
  if (begin >= end) return;
  if (piece.is_contiguous()) {
    visit(piece.base + begin, end - begin);
    return;
  }
  std::int64_t run = begin / piece.run;
  std::int64_t offset = begin % piece.run;
  while (begin < end) {
    const std::int64_t bytes = std::min(piece.run - offset, end - begin);
    visit(piece.base + run * piece.stride + offset, bytes);
    begin += bytes;
    offset = 0;
    ++run;
  }
}

// Short runs are common (a slice of the last dim), and a call of memcpy per run is then the cost.
void copy_stretch(std::byte* to, const std::byte* from, std::int64_t bytes) {
  switch (bytes) {
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 16:
      std::memcpy(to, from, 16);
      return;
    case 32:
      std::memcpy(to, from, 32);
      return;
    default:
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

}  // namespace

void pack(const Piece& from, std::int64_t begin, std::int64_t end, std::byte* to) {
  for_each_stretch(from, begin, end, [&](const std::byte* memory, std::int64_t bytes) {
    copy_stretch(to, memory, bytes);
    to += bytes;
  });
}

void unpack(const std::byte* from, const Piece& to, std::int64_t begin, std::int64_t end) {
  for_each_stretch(to, begin, end, [&](std::byte* memory, std::int64_t bytes) {
    copy_stretch(memory, from, bytes);
    from += bytes;
  });
}

void copy(const Piece& from, const Piece& to, std::int64_t begin, std::int64_t end) {
  if (from.base == to.base && from.run == to.run && from.stride == to.stride) return;
  for_each_stretch(to, begin, end, [&](std::byte* memory, std::int64_t bytes) {
    pack(from, begin, begin + bytes, memory);
    begin += bytes;
  });
}

}  // namespace tegula::comm
