// Reading parts of a file by whole chunks, each once, those that are neighbours in one read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tegula/files/file_layer.h"

namespace tegula::inner {

// Bytes of the file from `begin` on that go to this memory.
struct Wanted {
  std::uint64_t begin = 0;
  std::span<std::byte> to;
};

struct ChunkedFile {
  const File* file = nullptr;
  std::string path;  // for errors
  std::uint64_t size = 0;
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
  // One per chunk; empty: nothing is checked.
  std::span<const std::uint32_t> checksums;
};

// Fills what is wanted, which lies within the file. UsageError: a chunk whose checksum is another,
// named with its bytes. Reads at most 8 MiB at a time, and a chunk at least.
void read_wanted(const ChunkedFile& from, std::vector<Wanted> wanted);

// Reads all of it. UsageError as above.
void check_all(const ChunkedFile& file);

}  // namespace tegula::inner
