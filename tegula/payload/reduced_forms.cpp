// The idea: tensors that share memory share a count of the writes to it; what was made before the
// last write does not count.
#include "tegula/payload/reduced_forms.h"

#include <ATen/ATen.h>

#include <functional>
#include <optional>
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

struct ReducedForms::Memory {
  std::mutex mutex;
  std::uint64_t writes = 0;
  std::optional<std::size_t> hash;  // if it is exposed: when it was last looked at

  // The count, once writes that nobody told us of are in it.
  std::uint64_t count_writes(const at::Tensor& tile) {
    const std::lock_guard lock(mutex);
    if (hash) {
      const std::size_t now = hash_of_memory(tile);
      if (*hash != now) ++writes;
      hash = now;
    }
    return writes;
  }
};

ReducedForms::ReducedForms() : memory_(std::make_shared<Memory>()) {}

std::unique_ptr<ReducedForms> ReducedForms::of_alias() const {
  auto alias = std::make_unique<ReducedForms>();
  alias->memory_ = memory_;
  return alias;
}

at::Tensor ReducedForms::find_or_make(const DTensorSpec& to, const at::Tensor& tile,
                                      std::uint32_t epoch,
                                      const std::function<at::Tensor(const at::Tensor&)>& reduce) {
  const TensorMeta& meta = to.meta();
  if (meta.numel() * size_of(meta.dtype()) > kMostBytes) return reduce(tile);
  const std::uint64_t writes = memory_->count_writes(tile);
  {
    const std::lock_guard lock(mutex_);
    if (writes != writes_ || epoch != epoch_) forms_.clear();
    writes_ = writes;
    epoch_ = epoch;
    for (const Form& form : forms_) {
      if (form.to == to) return form.tile;
    }
  }
  at::Tensor made = reduce(tile);  // may wait for other ranks
  const std::lock_guard lock(mutex_);
  if (writes == writes_) forms_.push_back({to, made});
  return made;
}

void ReducedForms::note_write() {
  const std::lock_guard lock(memory_->mutex);
  ++memory_->writes;
}

void ReducedForms::note_exposed(const at::Tensor& tile) {
  const std::lock_guard lock(memory_->mutex);
  if (!memory_->hash) memory_->hash = hash_of_memory(tile);
}

}  // namespace tegula::inner
