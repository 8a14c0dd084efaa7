#include "tests/io/memory_files.h"

#include <algorithm>
#include <cstring>

#include "tegula/base/error.h"

namespace tegula {

using Kind = FileOperation::Kind;

class MemoryFile final : public inner::File {
 public:
  MemoryFile(MemoryFiles& disk, std::string path, MemoryFiles::Bytes bytes, int handle)
      : disk_(disk), path_(std::move(path)), bytes_(std::move(bytes)), handle_(handle) {}

  std::uint64_t size() const override {
    const std::scoped_lock lock(disk_.mutex_);
    return bytes_->size();
  }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    disk_.note({Kind::Write, path_, {}, offset, {bytes.begin(), bytes.end()}, handle_});
  }
  void read_parts(std::uint64_t offset, Parts parts) const override {
    std::uint64_t size = 0;
    for (const std::span<std::byte>& part : parts) size += part.size();
    if (disk_.before) disk_.before({Kind::Read, path_, {}, offset, {}, handle_, size});
    const std::scoped_lock lock(disk_.mutex_);
    for (const std::span<std::byte>& part : parts) {
      if (offset + part.size() > bytes_->size()) throw UsageError("a file ends too early");
      std::memcpy(part.data(), bytes_->data() + offset, part.size());
      offset += part.size();
    }
  }
  void allocate(std::uint64_t size) override {
    disk_.note({Kind::Allocate, path_, {}, size, {}, handle_});
  }
  void sync() override { disk_.note({Kind::Sync, path_, {}, 0, {}, handle_}); }

 private:
  MemoryFiles& disk_;
  std::string path_;
  MemoryFiles::Bytes bytes_;
  int handle_;
};

class MemoryLock final : public inner::FileLock {
 public:
  MemoryLock(MemoryFiles& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  ~MemoryLock() override {
    const std::scoped_lock lock(disk_.mutex_);
    disk_.locks_.erase(path_);
  }

 private:
  MemoryFiles& disk_;
  std::string path_;
};

namespace {

bool is_in(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

}  // namespace

std::vector<FileOperation> MemoryFiles::log() const {
  const std::scoped_lock lock(mutex_);
  return log_;
}

void MemoryFiles::clear_log() {
  const std::scoped_lock lock(mutex_);
  log_.clear();
}

void MemoryFiles::repeat(const FileOperation& operation) {
  const std::scoped_lock lock(mutex_);
  apply(operation);
}

std::map<std::string, std::string> MemoryFiles::contents() const {
  const std::scoped_lock lock(mutex_);
  std::map<std::string, std::string> contents;
  for (const auto& [path, bytes] : files_) {
    contents[path] = {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
  }
  return contents;
}

void MemoryFiles::damage(const std::string& path, std::uint64_t offset) {
  const std::scoped_lock lock(mutex_);
  files_.at(path)->at(offset) ^= std::byte{0x40};
}

void MemoryFiles::copy_from(const MemoryFiles& other) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  folders_ = other.folders_;
  for (const auto& [path, bytes] : other.files_) {
    files_[path] = std::make_shared<std::vector<std::byte>>(*bytes);
  }
}

void MemoryFiles::note(FileOperation operation) {
  if (before) before(operation);
  const std::scoped_lock lock(mutex_);
  apply(operation);
  log_.push_back(std::move(operation));
}

void MemoryFiles::apply(const FileOperation& operation) {
  const auto file = [&]() -> std::vector<std::byte>& { return *files_.at(operation.path); };
  switch (operation.kind) {
    case Kind::MakeFolder:
      folders_.insert(operation.path);
      break;
    case Kind::Create:
      files_[operation.path] = std::make_shared<std::vector<std::byte>>();
      break;
    case Kind::Allocate:
      file().resize(std::max<std::size_t>(file().size(), operation.offset));
      break;
    case Kind::Write:
      file().resize(
          std::max<std::size_t>(file().size(), operation.offset + operation.bytes.size()));
      std::memcpy(file().data() + operation.offset, operation.bytes.data(), operation.bytes.size());
      break;
    case Kind::Rename: {
      const auto moved = [&](const std::string& path) {
        return operation.to + path.substr(operation.path.size());
      };
      std::map<std::string, Bytes> files;
      for (auto& [path, bytes] : files_) {
        files[is_in(path, operation.path) ? moved(path) : path] = bytes;
      }
      files_ = std::move(files);
      std::set<std::string> folders;
      for (const std::string& path : folders_) {
        folders.insert(is_in(path, operation.path) ? moved(path) : path);
      }
      folders_ = std::move(folders);
      break;
    }
    case Kind::Remove:
      std::erase_if(files_, [&](const auto& one) { return is_in(one.first, operation.path); });
      std::erase_if(folders_, [&](const auto& one) { return is_in(one, operation.path); });
      break;
    case Kind::Sync:
    case Kind::SyncFolder:
    case Kind::Read:
      break;
  }
}

std::unique_ptr<inner::File> MemoryFiles::opened(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const auto found = files_.find(path);
  if (found == files_.end()) throw UsageError("there is no such file").fact("path", path);
  return std::make_unique<MemoryFile>(*this, path, found->second, ++handles_);
}

std::unique_ptr<inner::File> MemoryFiles::create(const std::string& path) {
  note({Kind::Create, path});
  return opened(path);
}
std::unique_ptr<inner::File> MemoryFiles::open_to_write(const std::string& path) {
  return opened(path);
}
std::unique_ptr<inner::File> MemoryFiles::open_to_read(const std::string& path) {
  return opened(path);
}
bool MemoryFiles::exists(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  return folders_.contains(path) || files_.contains(path);
}
std::vector<std::string> MemoryFiles::names_in(const std::string& folder) {
  const std::scoped_lock lock(mutex_);
  std::set<std::string> names;
  const auto add = [&](const std::string& path) {
    if (!path.starts_with(folder + "/")) return;
    const std::string rest = path.substr(folder.size() + 1);
    names.insert(rest.substr(0, rest.find('/')));
  };
  for (const auto& [path, bytes] : files_) add(path);
  for (const std::string& path : folders_) add(path);
  return {names.begin(), names.end()};
}
void MemoryFiles::make_folder(const std::string& path) { note({Kind::MakeFolder, path}); }
void MemoryFiles::rename(const std::string& from, const std::string& to) {
  note({Kind::Rename, from, to});
}
void MemoryFiles::remove_all(const std::string& path) { note({Kind::Remove, path}); }
void MemoryFiles::sync_folder(const std::string& path) { note({Kind::SyncFolder, path}); }
std::unique_ptr<inner::FileLock> MemoryFiles::try_lock(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  if (!locks_.insert(path).second) return nullptr;
  return std::make_unique<MemoryLock>(*this, path);
}

}  // namespace tegula
