// A region of a tensor's memory: equally long runs of bytes at equal distances. A slice of a
// contiguous tensor along any dim is one. Its bytes are numbered in order, run after run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tegula/spec/dtype.h"

namespace tegula::inner::comm {

struct Region {
  std::byte* base = nullptr;
  std::int64_t run = 0;     // bytes
  std::int64_t stride = 0;  // bytes from run to run
  std::int64_t runs = 0;

  static Region whole(const void* memory, std::int64_t bytes) {
    return {static_cast<std::byte*>(const_cast<void*>(memory)), bytes, bytes, 1};
  }
  std::int64_t bytes() const { return run * runs; }
  bool is_contiguous() const { return runs <= 1 || run == stride; }
};

// What a coalesced call does with one of its tensors: regions as in the single call.
struct TensorRegions {
  DType dtype;
  std::span<const Region> from;
  std::span<const Region> to;
};

// How results are written. Streaming goes around the caches: better for a result that is larger
// than they are, since its old bytes are then not read first.
enum class Writing { Cached, Streaming };
Writing writing_for(std::int64_t result_bytes);

// memcpy in that way. Whoever streams, by this or by what follows, calls settle() before the bytes
// are promised to others.
void write_bytes(void* to, const void* from, std::int64_t bytes, Writing writing);
void settle(Writing writing);

// Copies bytes [begin, end) of a region out to flat memory, or in from it. Ranges that reach past
// the region are cut to it.
void pack(const Region& from, std::int64_t begin, std::int64_t end, std::byte* to);
void unpack(const std::byte* from, const Region& to, std::int64_t begin, std::int64_t end,
            Writing writing = Writing::Cached);
// Copies bytes [begin, end) of one region to the same bytes of another of equal size.
void copy(const Region& from, const Region& to, std::int64_t begin, std::int64_t end,
          Writing writing = Writing::Cached);
inline void copy(const Region& from, const Region& to, Writing writing = Writing::Cached) {
  copy(from, to, 0, from.bytes(), writing);
}

}  // namespace tegula::inner::comm
