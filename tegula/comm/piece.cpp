#include "tegula/comm/piece.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

// Shorter runs would cost more in fences than they save.
constexpr std::int64_t kShortestStream = 512;

#if defined(__SSE2__)
void stream(std::byte* to, const std::byte* from, std::int64_t bytes) {
  const std::int64_t head = -reinterpret_cast<std::intptr_t>(to) & 15;
  std::memcpy(to, from, static_cast<std::size_t>(head));
  std::int64_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    for (std::int64_t j = i; j < i + 64; j += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
    }
  }
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}
void fence() { _mm_sfence(); }
#else
void stream(std::byte* to, const std::byte* from, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void fence() {}
#endif

}  // namespace

Writing writing_for(std::int64_t result_bytes) {
  constexpr std::int64_t kLargerThanCaches = 8 << 20;
  return result_bytes > kLargerThanCaches ? Writing::Streaming : Writing::Cached;
}

void write_bytes(void* to, const void* from, std::int64_t bytes, Writing writing) {
  if (writing == Writing::Streaming && bytes >= kShortestStream) {
    stream(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  } else {
    copy_stretch(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  }
}

void settle(Writing writing) {
  if (writing == Writing::Streaming) fence();
}

void pack(const Piece& from, std::int64_t begin, std::int64_t end, std::byte* to) {
  for_each_stretch(from, begin, end, [&](const std::byte* memory, std::int64_t bytes) {
    copy_stretch(to, memory, bytes);
    to += bytes;
  });
}

void unpack(const std::byte* from, const Piece& to, std::int64_t begin, std::int64_t end,
            Writing writing) {
  for_each_stretch(to, begin, end, [&](std::byte* memory, std::int64_t bytes) {
    write_bytes(memory, from, bytes, writing);
    from += bytes;
  });
  settle(writing);
}

void copy(const Piece& from, const Piece& to, std::int64_t begin, std::int64_t end,
          Writing writing) {
  if (from.base == to.base && from.run == to.run && from.stride == to.stride) return;
  for_each_stretch(to, begin, end, [&](std::byte* memory, std::int64_t bytes) {
    for_each_stretch(from, begin, begin + bytes, [&](const std::byte* source, std::int64_t length) {
      write_bytes(memory, source, length, writing);
      memory += length;
    });
    begin += bytes;
  });
  settle(writing);
}

}  // namespace tegula::comm
