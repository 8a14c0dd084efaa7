// The idea: copying is a walk over the stretches of contiguous memory of two regions. A result that
// is larger than the caches is streamed past them, by whole cache lines.
#include "tegula/comm/region.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace tegula::inner::comm {
namespace {

// Calls visit(memory, bytes) for the stretches of contiguous memory that make up [begin, end).
template <class Visit>
void for_each_stretch(const Region& region, std::int64_t begin, std::int64_t end, Visit visit) {
  end = std::min(end, region.bytes());
  if (begin >= end) return;
  if (region.is_contiguous()) {
    visit(region.base + begin, end - begin);
    return;
  }
  std::int64_t run = begin / region.run;
  std::int64_t offset = begin % region.run;
  while (begin < end) {
    const std::int64_t bytes = std::min(region.run - offset, end - begin);
    visit(region.base + run * region.stride + offset, bytes);
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
    case 64:
      std::memcpy(to, from, 64);
      return;
    case 128:
      std::memcpy(to, from, 128);
      return;
    default:
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kShortestStream = 512;

// A line of memory that is streamed in part only costs more than it saves.
bool is_worth_streaming(const void* to, std::int64_t bytes) {
  if (bytes >= kShortestStream) return true;
  return reinterpret_cast<std::intptr_t>(to) % kLine == 0 && bytes % kLine == 0;
}

#if defined(__SSE2__)
// `to` is made of whole cache lines.
void stream_lines(const Region& from, const Region& to) {
  for (std::int64_t run = 0; run < to.runs; ++run) {
    std::byte* target = to.base + run * to.stride;
    const std::byte* source = from.base + run * from.stride;
    for (std::int64_t i = 0; i < to.run; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
    }
  }
}
// A line in one store is a sixth faster.
__attribute__((target("avx512f"))) void stream_lines_at_once(const Region& from, const Region& to) {
  for (std::int64_t run = 0; run < to.runs; ++run) {
    std::byte* target = to.base + run * to.stride;
    const std::byte* source = from.base + run * from.stride;
    for (std::int64_t i = 0; i < to.run; i += kLine) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), _mm512_loadu_si512(source + i));
    }
  }
}

void stream_runs(const Region& from, const Region& to) {
  static const bool at_once = __builtin_cpu_supports("avx512f");
  (at_once ? stream_lines_at_once : stream_lines)(from, to);
}

void stream(std::byte* to, const std::byte* from, std::int64_t bytes) {
  const std::int64_t head = std::min(-reinterpret_cast<std::intptr_t>(to) & (kLine - 1), bytes);
  const std::int64_t lines = (bytes - head) / kLine * kLine;
  std::memcpy(to, from, static_cast<std::size_t>(head));
  stream_runs(Region::whole(from + head, lines), Region::whole(to + head, lines));
  std::memcpy(to + head + lines, from + head + lines,
              static_cast<std::size_t>(bytes - head - lines));
}
void fence() { _mm_sfence(); }
#else
void stream_runs(const Region& from, const Region& to) {
  for (std::int64_t run = 0; run < to.runs; ++run) {
    std::memcpy(to.base + run * to.stride, from.base + run * from.stride,
                static_cast<std::size_t>(to.run));
  }
}
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
  if (writing == Writing::Streaming && is_worth_streaming(to, bytes)) {
    stream(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  } else {
    copy_stretch(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  }
}

void settle(Writing writing) {
  if (writing == Writing::Streaming) fence();
}

void pack(const Region& from, std::int64_t begin, std::int64_t end, std::byte* to) {
  for_each_stretch(from, begin, end, [&](const std::byte* memory, std::int64_t bytes) {
    copy_stretch(to, memory, bytes);
    to += bytes;
  });
}

namespace {

// Short runs are put together in the first-level cache, so that whole lines are streamed.
void stream_gathered(const Region& from, std::int64_t begin, std::int64_t bytes, std::byte* to) {
  constexpr std::int64_t kRoom = 8 << 10;
  alignas(kLine) std::byte room[kRoom];
  while (bytes > 0) {
    // Up to the end of a line of `to`, after which all is aligned.
    const std::int64_t length =
        std::min(bytes, kRoom - (reinterpret_cast<std::intptr_t>(to) & (kLine - 1)));
    pack(from, begin, begin + length, room);
    write_bytes(to, room, length, Writing::Streaming);
    begin += length;
    to += length;
    bytes -= length;
  }
}

// A contiguous region as runs of `run` bytes; another one as it is.
Region in_runs(const Region& region, std::int64_t run) {
  if (!region.is_contiguous()) return region;
  return {region.base, run, run, region.bytes() / run};
}

// If one region is contiguous or both have equal runs, and the runs of `to` are whole cache lines:
// one loop over them, whatever their length.
bool stream_in_runs(const Region& from, const Region& to, std::int64_t begin, std::int64_t end) {
  const std::int64_t run = to.is_contiguous() ? from.run : to.run;
  if (run == 0 || (from.is_contiguous() && to.is_contiguous())) return false;
  const Region source = in_runs(from, run), target = in_runs(to, run);
  const auto place = reinterpret_cast<std::intptr_t>(target.base);
  if (source.run != target.run || (place | run | target.stride) % kLine != 0) return false;
  const std::int64_t first = (begin + run - 1) / run;
  const std::int64_t last = std::min(end, to.bytes()) / run;
  if (first >= last) return false;
  const auto part = [&](const Region& region) {
    return Region{region.base + first * region.stride, run, region.stride, last - first};
  };
  stream_runs(part(source), part(target));
  copy(from, to, begin, first * run);
  copy(from, to, last * run, end);
  return true;
}

}  // namespace

void unpack(const std::byte* from, const Region& to, std::int64_t begin, std::int64_t end,
            Writing writing) {
  for_each_stretch(to, begin, end, [&](std::byte* memory, std::int64_t bytes) {
    write_bytes(memory, from, bytes, writing);
    from += bytes;
  });
}

void copy(const Region& from, const Region& to, std::int64_t begin, std::int64_t end,
          Writing writing) {
  if (from.base == to.base && from.run == to.run && from.stride == to.stride) return;
  if (writing == Writing::Streaming && stream_in_runs(from, to, begin, end)) return;
  const bool gathers = writing == Writing::Streaming && !from.is_contiguous() &&
                       from.run < to.run && !is_worth_streaming(to.base, from.run);
  for_each_stretch(to, begin, end, [&](std::byte* memory, std::int64_t bytes) {
    if (gathers) {
      stream_gathered(from, begin, bytes, memory);
      begin += bytes;
      return;
    }
    for_each_stretch(from, begin, begin + bytes, [&](const std::byte* source, std::int64_t length) {
      write_bytes(memory, source, length, writing);
      memory += length;
    });
    begin += bytes;
  });
}

}  // namespace tegula::inner::comm
