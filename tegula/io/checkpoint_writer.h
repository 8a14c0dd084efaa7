// The files of a checkpoint, as one rank writes to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tegula/files/chunk_sums.h"
#include "tegula/files/file_layer.h"
#include "tegula/files/file_plan.h"

namespace tegula::inner {

// Small pieces that follow each other are written together. After an error it writes nothing more,
// and finish throws it: a rank whose disk is full goes on to communicate.
class CheckpointWriter {
 public:
  // To files that are there. The plan has to live as long.
  CheckpointWriter(FileLayer& files, std::string path, const FilePlan& plan,
                   std::uint64_t chunk_bytes);

  void write(std::size_t file, std::uint64_t offset, std::span<const std::byte> bytes);
  // What was written reaches the disk.
  void finish();
  // Of what this rank has written.
  ChunkSums& sums(std::size_t file) { return sums_[file]; }

 private:
  File& opened(std::size_t file);
  void write_pieces(std::size_t file, std::uint64_t offset, std::span<const std::byte> bytes);
  void flush();

  FileLayer& files_;
  std::string path_;
  const FilePlan& plan_;
  std::vector<std::unique_ptr<File>> open_;
  std::vector<ChunkSums> sums_;
  std::size_t buffered_file_ = 0;
  std::uint64_t buffered_at_ = 0;
  std::vector<std::byte> buffer_;
  std::exception_ptr error_;
};

}  // namespace tegula::inner
