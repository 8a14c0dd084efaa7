#include "tegula/payload/write_count.h"

#include <ATen/ATen.h>

#include <functional>
#include <string_view>

namespace tegula::inner {
namespace {

std::size_t hash_of_memory(const at::Tensor& tile) {
  const c10::Storage& storage = tile.storage();
  if (storage.data() == nullptr) return 0;  // a shape without data
  return std::hash<std::string_view>()(
      {static_cast<const char*>(storage.data()), storage.nbytes()});
}

}  // namespace

void WriteCount::note_write() {
  const std::lock_guard lock(mutex_);
  ++writes_;
}

void WriteCount::note_exposed(const at::Tensor& tile) {
  const std::lock_guard lock(mutex_);
  if (!hash_) hash_ = hash_of_memory(tile);
}

std::uint64_t WriteCount::count(const at::Tensor& tile) {
  const std::lock_guard lock(mutex_);
  if (hash_) {
    const std::size_t now = hash_of_memory(tile);
    if (*hash_ != now) ++writes_;
    hash_ = now;
  }
  return writes_;
}

}  // namespace tegula::inner
