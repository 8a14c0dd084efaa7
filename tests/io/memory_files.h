// A disk in memory that notes every operation, so that tests can fail one, and can lay out what a
// crash would have left.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tegula/files/file_layer.h"

namespace tegula {

struct FileOperation {
  enum class Kind { MakeFolder, Create, Allocate, Write, Sync, SyncFolder, Rename, Remove, Read };
  Kind kind = Kind::Write;
  std::string path;
  std::string to = {};       // of a rename
  std::uint64_t offset = 0;  // or size, of an allocation
  std::vector<std::byte> bytes = {};
  int handle = 0;          // of a file that is open
  std::uint64_t size = 0;  // of a read
};

class MemoryFiles final : public inner::FileLayer {
 public:
  // Called before each operation; what it throws, the caller gets. Any thread.
  std::function<void(const FileOperation&)> before;

  std::vector<FileOperation> log() const;
  void clear_log();
  // Does to this disk what was done to another; not noted.
  void repeat(const FileOperation& operation);
  // Every file with its bytes, by path.
  std::map<std::string, std::string> contents() const;
  // One byte of a file is another.
  void damage(const std::string& path, std::uint64_t offset);
  void copy_from(const MemoryFiles& other);

  std::unique_ptr<inner::File> create(const std::string& path) override;
  std::unique_ptr<inner::File> open_to_write(const std::string& path) override;
  std::unique_ptr<inner::File> open_to_read(const std::string& path) override;
  bool exists(const std::string& path) override;
  std::vector<std::string> names_in(const std::string& folder) override;
  void make_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_all(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  std::unique_ptr<inner::FileLock> try_lock(const std::string& path) override;

 private:
  friend class MemoryFile;
  friend class MemoryLock;
  using Bytes = std::shared_ptr<std::vector<std::byte>>;

  void note(FileOperation operation);
  void apply(const FileOperation& operation);
  std::unique_ptr<inner::File> opened(const std::string& path);

  mutable std::mutex mutex_;
  std::map<std::string, Bytes> files_;
  std::set<std::string> folders_;
  std::set<std::string> locks_;
  std::vector<FileOperation> log_;
  int handles_ = 0;
};

}  // namespace tegula
