// What goes before a message that carries its shape, so that the receiver can make room for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tegula/spec/tensor_meta.h"

namespace tegula::inner::comm {

struct TensorHead {
  static constexpr std::uint64_t kMark = 0x7465'6775'6c61'6831ULL;
  static constexpr std::size_t kMostDims = 64;

  std::uint64_t mark = kMark;
  std::int64_t bytes = 0;  // of the message that follows
  std::int32_t dtype = 0;
  std::int32_t dims = 0;
  std::array<std::int64_t, kMostDims> sizes{};

  std::span<const std::byte> memory() const { return std::as_bytes(std::span(this, 1)); }
};

// UsageError for more dims than there is room for.
TensorHead head_of(const TensorMeta& tensor);

// What the head says. CommError if it cannot be true: not a head, no such dtype, sizes that are
// negative or do not make up the bytes.
TensorMeta meta_in(std::span<const std::byte> head);

}  // namespace tegula::inner::comm
