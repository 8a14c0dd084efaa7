#include "tegula/io/checkpoint_writer.h"

#include <algorithm>

namespace tegula::inner {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

CheckpointWriter::CheckpointWriter(FileLayer& files, std::string path, const FilePlan& plan,
                                   std::uint64_t chunk_bytes)
    : files_(files), path_(std::move(path)), plan_(plan), open_(plan.files.size()) {
  for (const PlannedFile& file : plan.files) sums_.emplace_back(file.size, chunk_bytes);
}

void CheckpointWriter::write(std::size_t file, std::uint64_t offset,
                             std::span<const std::byte> bytes) {
  if (error_ || bytes.empty()) return;
  try {
    if (file != buffered_file_ || offset != buffered_at_ + buffer_.size()) flush();
    if (bytes.size() >= kBufferBytes) {
      flush();
      write_pieces(file, offset, bytes);
      return;
    }
    sums_[file].add(offset, bytes);
    if (buffer_.empty()) {
      buffered_file_ = file;
      buffered_at_ = offset;
    }
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    if (buffer_.size() >= kBufferBytes) flush();
  } catch (...) {
    error_ = std::current_exception();
  }
}

// So that what was checked is still in the caches when it is written.
void CheckpointWriter::write_pieces(std::size_t file, std::uint64_t offset,
                                    std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kBufferBytes));
    sums_[file].add(offset, piece);
    opened(file).write_at(offset, piece);
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

void CheckpointWriter::finish() {
  if (error_) std::rethrow_exception(error_);
  flush();
  for (const std::unique_ptr<File>& file : open_) {
    if (file) file->sync();
  }
  open_.clear();
}

File& CheckpointWriter::opened(std::size_t file) {
  if (!open_[file]) open_[file] = files_.open_to_write(path_ + "/" + plan_.files[file].name);
  return *open_[file];
}

void CheckpointWriter::flush() {
  if (!buffer_.empty()) opened(buffered_file_).write_at(buffered_at_, buffer_);
  buffer_.clear();
}

}  // namespace tegula::inner
