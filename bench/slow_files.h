// The disk with each read delayed, as if it were far away.
#pragma once

#include <chrono>
#include <thread>
#include <utility>

#include "tegula/files/file_layer.h"

namespace tegula::bench {

class SlowFile final : public inner::File {
 public:
  SlowFile(std::unique_ptr<inner::File> file, std::chrono::microseconds delay)
      : file_(std::move(file)), delay_(delay) {}
  std::uint64_t size() const override { return file_->size(); }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    file_->write_at(offset, bytes);
  }
  void read_parts(std::uint64_t offset, Parts parts) const override {
    std::this_thread::sleep_for(delay_);
    file_->read_parts(offset, parts);
  }
  void allocate(std::uint64_t size) override { file_->allocate(size); }
  void sync() override { file_->sync(); }

 private:
  std::unique_ptr<inner::File> file_;
  std::chrono::microseconds delay_;
};

class SlowFiles final : public inner::FileLayer {
 public:
  explicit SlowFiles(std::chrono::microseconds delay) : delay_(delay) {}
  std::unique_ptr<inner::File> create(const std::string& path) override {
    return files_->create(path);
  }
  std::unique_ptr<inner::File> open_to_write(const std::string& path) override {
    return files_->open_to_write(path);
  }
  std::unique_ptr<inner::File> open_to_read(const std::string& path) override {
    return std::make_unique<SlowFile>(files_->open_to_read(path), delay_);
  }
  bool exists(const std::string& path) override { return files_->exists(path); }
  std::vector<std::string> names_in(const std::string& folder) override {
    return files_->names_in(folder);
  }
  void make_folder(const std::string& path) override { files_->make_folder(path); }
  void rename(const std::string& from, const std::string& to) override { files_->rename(from, to); }
  void remove_all(const std::string& path) override { files_->remove_all(path); }
  void sync_folder(const std::string& path) override { files_->sync_folder(path); }
  std::unique_ptr<inner::FileLock> try_lock(const std::string& path) override {
    return files_->try_lock(path);
  }

 private:
  std::shared_ptr<inner::FileLayer> files_ = inner::disk_files();
  std::chrono::microseconds delay_;
};

}  // namespace tegula::bench
