#include "tegula/comm/buffers.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <iterator>
#include <list>
#include <mutex>
#include <new>

namespace tegula::comm {
namespace {

// Up to here malloc keeps its pages warm by itself.
constexpr std::int64_t kLarge = 1 << 20;
constexpr std::int64_t kHugePage = 2 << 20;

struct Block {
  void* memory;
  std::int64_t bytes;
};

Block fresh_block(std::int64_t bytes) {
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return {memory, bytes};
}

void drop(const Block& block) { munmap(block.memory, static_cast<std::size_t>(block.bytes)); }

}  // namespace

class Buffers::Pool {
 public:
  explicit Pool(std::int64_t capacity) : capacity_(capacity) {}
  ~Pool() {
    for (const Block& block : blocks_) drop(block);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The newest block that fits without wasting more than a quarter.
  Block take(std::int64_t bytes) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
        if (block->bytes < bytes || block->bytes > bytes + bytes / 4 + kHugePage) continue;
        const Block found = *block;
        blocks_.erase(block);
        kept_ -= found.bytes;
        return found;
      }
    }
    return fresh_block(bytes);
  }

  void give_back(const Block& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_front(block);
    kept_ += block.bytes;
    while (kept_ > capacity_) {
      kept_ -= blocks_.back().bytes;
      drop(blocks_.back());
      blocks_.pop_back();
    }
  }

  std::int64_t kept() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kept_;
  }

 private:
  std::mutex mutex_;
  std::list<Block> blocks_;  // newest first
  std::int64_t kept_ = 0;
  std::int64_t capacity_;
};

Buffers::Buffers(std::int64_t capacity) : pool_(std::make_shared<Pool>(capacity)) {}

at::Tensor Buffers::empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto bytes = static_cast<std::int64_t>(c10::multiply_integers(sizes) *
                                               static_cast<std::int64_t>(c10::elementSize(dtype)));
  if (bytes < kLarge) {
    return at::detail::empty_cpu(sizes, dtype, /*pin_memory=*/false,
                                 /*memory_format=*/std::nullopt);
  }
  const Block block = pool_->take(bytes);
  return at::from_blob(
      block.memory, sizes, [pool = pool_, block](void*) { pool->give_back(block); },
      at::TensorOptions().dtype(dtype));
}

std::int64_t Buffers::kept() const { return pool_->kept(); }

}  // namespace tegula::comm
