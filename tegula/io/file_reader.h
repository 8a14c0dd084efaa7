// Files that are open for reading, and the parts of them that are wanted next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "tegula/files/chunk_reader.h"
#include "tegula/files/file_layer.h"

namespace tegula::inner {

struct SourceFile {
  std::string path;
  std::uint64_t size = 0;
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
  std::vector<std::uint32_t> checksums = {};  // empty: nothing is compared
};

// Bytes of a tensor, row-major, that stand in a file one after the other.
struct FilePiece {
  std::size_t file = 0;
  std::uint64_t file_begin = 0;
  std::uint64_t tensor_begin = 0;
  std::uint64_t bytes = 0;
};

// A tensor, plain or distributed, and where its elements are. They may be of another type there.
struct SourcedTensor {
  at::Tensor tensor;
  at::ScalarType type;
  std::vector<FilePiece> pieces;  // all of the tensor
};

// Where `bytes` bytes of a tensor from `begin` on stand.
std::vector<FilePiece> part_of(const std::vector<FilePiece>& pieces, std::uint64_t begin,
                               std::uint64_t bytes);

// After an error it reads nothing more and keeps it: the rank goes on to communicate.
class FileReader {
 public:
  FileReader(FileLayer& files, const std::vector<SourceFile>& sources)
      : files_(files), sources_(sources), open_(sources.size()), wanted_(sources.size()) {}

  const SourceFile& source(std::size_t file) const { return sources_[file]; }
  // The disk may begin to read this.
  void hint(const FilePiece& piece);
  // To be read to this memory.
  void want(const FilePiece& piece, std::byte* to);
  // All that is wanted, neighbours together.
  void read();
  const std::exception_ptr& error() const { return error_; }

 private:
  const File& opened(std::size_t file);

  FileLayer& files_;
  const std::vector<SourceFile>& sources_;
  std::vector<std::unique_ptr<File>> open_;
  std::vector<std::vector<Wanted>> wanted_;
  std::exception_ptr error_;
};

}  // namespace tegula::inner
