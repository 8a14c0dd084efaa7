#include "tegula/files/chunk_sums.h"

#include <algorithm>

#include "tegula/files/crc32c.h"

namespace tegula::inner {

std::size_t chunk_count(std::uint64_t file_size, std::uint64_t chunk_bytes) {
  return static_cast<std::size_t>((file_size + chunk_bytes - 1) / chunk_bytes);
}

std::uint64_t chunk_end(std::uint64_t file_size, std::uint64_t chunk_bytes, std::size_t chunk) {
  return std::min((chunk + 1) * chunk_bytes, file_size);
}

ChunkSums::ChunkSums(std::uint64_t file_size, std::uint64_t chunk_bytes)
    : file_size_(file_size),
      chunk_bytes_(chunk_bytes),
      remainders_(chunk_count(file_size, chunk_bytes)) {}

void ChunkSums::add(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto chunk = static_cast<std::size_t>(offset / chunk_bytes_);
    const std::uint64_t end = chunk_end(file_size_, chunk_bytes_, chunk);
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), end - offset));
    remainders_[chunk] ^= shifted(raw_crc32c(bytes.first(size)), end - offset - size);
    offset += size;
    bytes = bytes.subspan(size);
  }
}

std::vector<std::uint32_t> checksums(const std::vector<std::uint32_t>& remainders,
                                     std::uint64_t file_size, std::uint64_t chunk_bytes) {
  std::vector<std::uint32_t> sums;
  for (std::size_t chunk = 0; chunk < remainders.size(); ++chunk) {
    const std::uint64_t size = chunk_end(file_size, chunk_bytes, chunk) - chunk * chunk_bytes;
    sums.push_back(whole_crc32c(remainders[chunk], size));
  }
  return sums;
}

}  // namespace tegula::inner
