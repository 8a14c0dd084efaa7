// The operations on files of which checkpoints are made. A seam: what is written goes through one
// FileLayer, so that a test can note every step, refuse one, or make it slow.
//
// Whatever the system refuses is a UsageError with the system's reason and the path. Any thread may
// use a layer; files are used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tegula::inner {

class File {
 public:
  using Parts = std::span<const std::span<std::byte>>;

  virtual ~File() = default;
  virtual std::uint64_t size() const = 0;
  // All of these bytes, at this place.
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Fills these one after the other with what stands there, which has to be there, in one read.
  virtual void read_parts(std::uint64_t offset, Parts parts) const = 0;
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
    read_parts(offset, {&bytes, 1});
  }
  // Will soon be read: the disk may begin. A hint.
  virtual void will_read(std::uint64_t /*offset*/, std::uint64_t /*size*/) const {}
  // Takes this many bytes of the disk, so that it is full now if at all.
  virtual void allocate(std::uint64_t size) = 0;
  // When it returns, what was written by this host outlasts a loss of power.
  virtual void sync() = 0;
};

// Holds a lock; lets go of it with its life.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileLayer {
 public:
  virtual ~FileLayer() = default;
  // A new file, or an old one emptied.
  virtual std::unique_ptr<File> create(const std::string& path) = 0;
  virtual std::unique_ptr<File> open_to_write(const std::string& path) = 0;
  virtual std::unique_ptr<File> open_to_read(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  // Names in a folder, sorted.
  virtual std::vector<std::string> names_in(const std::string& folder) = 0;
  // Those above it, too. One that is there stays.
  virtual void make_folder(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // A file, or a folder with what it holds; nothing if it is not there.
  virtual void remove_all(const std::string& path) = 0;
  // When it returns, names made, changed and removed in the folder are so after a loss of power.
  virtual void sync_folder(const std::string& path) = 0;
  // Null if another holds it, in this process or in one on a host that shares the disk.
  virtual std::unique_ptr<FileLock> try_lock(const std::string& path) = 0;
};

// The system's own.
std::shared_ptr<FileLayer> disk_files();

// All of a file. UsageError if it has more bytes than this.
std::string text_of_file(FileLayer& files, const std::string& path, std::uint64_t most);

}  // namespace tegula::inner
