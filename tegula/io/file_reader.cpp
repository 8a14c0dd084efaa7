#include "tegula/io/file_reader.h"

#include <algorithm>
#include <utility>

namespace tegula::inner {

std::vector<FilePiece> part_of(const std::vector<FilePiece>& pieces, std::uint64_t begin,
                               std::uint64_t bytes) {
  std::vector<FilePiece> parts;
  for (const FilePiece& piece : pieces) {
    const std::uint64_t first = std::max(begin, piece.tensor_begin);
    const std::uint64_t last = std::min(begin + bytes, piece.tensor_begin + piece.bytes);
    if (first >= last) continue;
    parts.push_back(
        {piece.file, piece.file_begin + (first - piece.tensor_begin), first, last - first});
  }
  return parts;
}

const File& FileReader::opened(std::size_t file) {
  if (!open_[file]) open_[file] = files_.open_to_read(sources_[file].path);
  return *open_[file];
}

void FileReader::hint(const FilePiece& piece) {
  if (error_) return;
  try {
    opened(piece.file).will_read(piece.file_begin, piece.bytes);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void FileReader::want(const FilePiece& piece, std::byte* to) {
  wanted_[piece.file].push_back({piece.file_begin, {to, static_cast<std::size_t>(piece.bytes)}});
}

void FileReader::read() {
  for (std::size_t file = 0; file < wanted_.size(); ++file) {
    const std::vector<Wanted> wanted = std::exchange(wanted_[file], {});
    if (wanted.empty() || error_) continue;
    try {
      const SourceFile& source = sources_[file];
      read_wanted({&opened(file), source.path, source.size, source.chunk_bytes, source.checksums},
                  wanted);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
}

}  // namespace tegula::inner
