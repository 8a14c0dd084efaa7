// The idea: each operation is one of POSIX, and what it refuses is said with the path.
#include "tegula/files/file_layer.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tegula/base/descriptor.h"
#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& path, int reason) {
  throw UsageError("cannot " + what + ": " + std::system_category().message(reason))
      .fact("path", path);
}

Descriptor opened(const std::string& path, int flags, const char* what) {
  constexpr mode_t kMode = 0666;  // what the user's mask leaves of it
  Descriptor descriptor(::open(path.c_str(), flags | O_CLOEXEC, kMode));
  if (descriptor.get() < 0) refuse(what, path, errno);
  return descriptor;
}

// Linux moves at most 2 GiB in one call.
constexpr std::size_t kMostPerWrite = std::size_t{1} << 30;

class DiskFile final : public File {
 public:
  DiskFile(Descriptor descriptor, std::string path)
      : descriptor_(std::move(descriptor)), path_(std::move(path)) {}

  std::uint64_t size() const override {
    struct stat facts{};
    if (::fstat(descriptor_.get(), &facts) != 0) refuse("look at a file", path_, errno);
    if (!S_ISREG(facts.st_mode))
      throw UsageError("this path leads to something that is no regular file").fact("path", path_);
    return static_cast<std::uint64_t>(facts.st_size);
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t done =
          ::pwrite(descriptor_.get(), bytes.data(), std::min(bytes.size(), kMostPerWrite),
                   static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) refuse("write to a file", path_, done < 0 ? errno : ENOSPC);
      offset += static_cast<std::uint64_t>(done);
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

  void read_parts(std::uint64_t offset, Parts parts) const override {
    std::vector<iovec> rest;
    for (const std::span<std::byte>& part : parts) {
      if (!part.empty()) rest.push_back({part.data(), part.size()});
    }
    std::size_t first = 0;
    while (first < rest.size()) {
      const auto count = static_cast<int>(std::min<std::size_t>(rest.size() - first, IOV_MAX));
      const ssize_t done =
          ::preadv(descriptor_.get(), &rest[first], count, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse("read from a file", path_, errno);
      if (done == 0) {
        throw UsageError("a file ends before what is to be read")
            .fact("path", path_)
            .fact("bytes", std::to_string(size()));
      }
      offset += static_cast<std::uint64_t>(done);
      auto left = static_cast<std::size_t>(done);
      while (first < rest.size() && left >= rest[first].iov_len) left -= rest[first++].iov_len;
      if (left == 0) continue;
      rest[first].iov_base = static_cast<std::byte*>(rest[first].iov_base) + left;
      rest[first].iov_len -= left;
    }
  }

  void will_read(std::uint64_t offset, std::uint64_t size) const override {
    // Linux takes from one call what the disk reads at once.
    constexpr std::uint64_t kPiece = std::uint64_t{512} << 10;
    for (const std::uint64_t end = offset + size; offset < end; offset += kPiece) {
      ::posix_fadvise(descriptor_.get(), static_cast<off_t>(offset),
                      static_cast<off_t>(std::min(kPiece, end - offset)), POSIX_FADV_WILLNEED);
    }
  }

  void allocate(std::uint64_t size) override {
    if (size == 0) return;
    int reason = ::fallocate(descriptor_.get(), 0, 0, static_cast<off_t>(size)) == 0 ? 0 : errno;
    // Where the file system cannot, a full disk shows when it is written to.
    if (reason == EOPNOTSUPP || reason == ENOSYS || reason == EINVAL) {
      reason = ::ftruncate(descriptor_.get(), static_cast<off_t>(size)) == 0 ? 0 : errno;
    }
    if (reason != 0) refuse("make a file of " + std::to_string(size) + " bytes", path_, reason);
  }

  void sync() override {
    if (::fsync(descriptor_.get()) != 0) refuse("write a file to its disk", path_, errno);
  }

 private:
  Descriptor descriptor_;
  std::string path_;
};

class DiskLock final : public FileLock {
 public:
  explicit DiskLock(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

 private:
  Descriptor descriptor_;
};

class DiskFiles final : public FileLayer {
 public:
  std::unique_ptr<File> create(const std::string& path) override {
    return std::make_unique<DiskFile>(opened(path, O_RDWR | O_CREAT | O_TRUNC, "make a file"),
                                      path);
  }
  std::unique_ptr<File> open_to_write(const std::string& path) override {
    return std::make_unique<DiskFile>(opened(path, O_RDWR, "open a file for writing"), path);
  }
  std::unique_ptr<File> open_to_read(const std::string& path) override {
    return std::make_unique<DiskFile>(opened(path, O_RDONLY, "open a file"), path);
  }
  bool exists(const std::string& path) override {
    std::error_code error;
    return std::filesystem::exists(path, error);
  }
  std::vector<std::string> names_in(const std::string& folder) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator one(folder, error), end; !error && one != end;
         one.increment(error)) {
      names.push_back(one->path().filename().string());
    }
    if (error) refuse("list a folder", folder, error.value());
    std::ranges::sort(names);
    return names;
  }
  void make_folder(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) refuse("make a folder", path, error.value());
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) refuse("rename to " + to, from, errno);
  }
  void remove_all(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) refuse("remove a folder", path, error.value());
  }
  void sync_folder(const std::string& path) override {
    const Descriptor descriptor = opened(path, O_RDONLY | O_DIRECTORY, "open a folder");
    // Some file systems have nothing to do for a folder, and say so.
    if (::fsync(descriptor.get()) != 0 && errno != EINVAL) {
      refuse("write a folder to its disk", path, errno);
    }
  }
  std::unique_ptr<FileLock> try_lock(const std::string& path) override {
    Descriptor descriptor = opened(path, O_RDWR | O_CREAT, "make a file");
    if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) == 0) {
      return std::make_unique<DiskLock>(std::move(descriptor));
    }
    if (errno == EWOULDBLOCK) return nullptr;
    refuse("lock a file", path, errno);
  }
};

}  // namespace

std::shared_ptr<FileLayer> disk_files() {
  static const auto files = std::make_shared<DiskFiles>();
  return files;
}

std::string text_of_file(FileLayer& files, const std::string& path, std::uint64_t most) {
  const std::unique_ptr<File> file = files.open_to_read(path);
  const std::uint64_t size = file->size();
  if (size > most) {
    throw UsageError("a file is longer than it can be")
        .fact("path", path)
        .fact("bytes", std::to_string(size))
        .fact("most", std::to_string(most));
  }
  std::string text(size, '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace tegula::inner
