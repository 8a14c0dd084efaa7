#include "tegula/io/reused_memory.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tegula/bridge/torch_types.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tegula::inner {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{64} << 20;
constexpr std::int64_t kAlignment = 64;
constexpr std::uintptr_t kLargePage = std::uintptr_t{2} << 20;

at::Tensor block_of(std::int64_t bytes) {
  const at::Tensor block = at::empty({bytes}, at::TensorOptions(at::kByte).device(host_device()));
  const auto begin = reinterpret_cast<std::uintptr_t>(block.data_ptr());
  const std::uintptr_t first = (begin + kLargePage - 1) / kLargePage * kLargePage;
  const std::uintptr_t last =
      (begin + static_cast<std::uintptr_t>(bytes)) / kLargePage * kLargePage;
  // A wish: where the system has no large pages, small ones do.
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return block;
}

#if defined(__x86_64__)

void stream(std::byte* to, const std::byte* from, std::size_t size) {
  const std::size_t before =
      std::min(size, (kAlignment - reinterpret_cast<std::uintptr_t>(to) % kAlignment) % kAlignment);
  std::memcpy(to, from, before);
  to += before, from += before, size -= before;
  for (; size >= kAlignment; to += kAlignment, from += kAlignment, size -= kAlignment) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
  std::memcpy(to, from, size);
}

#else

void stream(std::byte* to, const std::byte* from, std::size_t size) { std::memcpy(to, from, size); }

#endif

}  // namespace

at::Tensor ReusedMemory::tensor(at::IntArrayRef sizes, at::ScalarType type) {
  const std::int64_t size = c10::multiply_integers(sizes) * c10::elementSize(type);
  if (size == 0) return at::empty(sizes, at::TensorOptions(type).device(host_device()));
  const std::int64_t taken = (size + kAlignment - 1) / kAlignment * kAlignment;
  const auto has_room = [&](const Block& block) {
    return block.bytes.numel() - block.used >= taken;
  };
  auto block = std::ranges::find_if(blocks_, has_room);
  if (block == blocks_.end()) {
    blocks_.push_back({block_of(std::max(taken, kBlockBytes)), 0});
    block = blocks_.end() - 1;
  }
  const at::Tensor bytes = block->bytes.narrow(0, block->used, size);
  block->used += taken;
  return bytes.view(type).view(sizes);
}

void ReusedMemory::reuse() {
  for (Block& block : blocks_) block.used = 0;
}

void copy_past_caches(const at::Tensor& to, const at::Tensor& from) {
  stream(static_cast<std::byte*>(to.data_ptr()),
         static_cast<const std::byte*>(from.const_data_ptr()), to.nbytes());
}

}  // namespace tegula::inner
