// Checksums of a file, one per chunk of it, composed of what each rank has written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tegula::inner {

// Of one file, by one rank. Law: where the pieces of all ranks fill the file, each byte once, the
// exclusive or of their remainders gives the file's checksums.
class ChunkSums {
 public:
  ChunkSums(std::uint64_t file_size, std::uint64_t chunk_bytes);
  // These bytes stand at this place.
  void add(std::uint64_t offset, std::span<const std::byte> bytes);
  // One per chunk; the last may be short.
  const std::vector<std::uint32_t>& remainders() const { return remainders_; }

 private:
  std::uint64_t file_size_;
  std::uint64_t chunk_bytes_;
  std::vector<std::uint32_t> remainders_;
};

// Where a chunk ends.
std::uint64_t chunk_end(std::uint64_t file_size, std::uint64_t chunk_bytes, std::size_t chunk);
std::size_t chunk_count(std::uint64_t file_size, std::uint64_t chunk_bytes);
// From the remainders of all ranks, together.
std::vector<std::uint32_t> checksums(const std::vector<std::uint32_t>& remainders,
                                     std::uint64_t file_size, std::uint64_t chunk_bytes);

}  // namespace tegula::inner
