#include "tegula/comm/buffers.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <iterator>
#include <list>
#include <mutex>
#include <new>
#include <utility>

#include "tegula/comm/shm/blocks.h"

namespace tegula::comm {
namespace {

// Up to here malloc keeps its pages warm by itself.
constexpr std::int64_t kLarge = 1 << 20;
constexpr std::int64_t kHugePage = 2 << 20;

struct Block {
  void* memory;
  std::int64_t bytes;
};

Block private_block(std::int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return {memory, bytes};
}

}  // namespace

class Buffers::Pool {
 public:
  Pool(std::shared_ptr<shm::Blocks> blocks, std::int64_t capacity)
      : blocks_(std::move(blocks)), capacity_(capacity) {}
  ~Pool() {
    for (const Block& block : unused_) drop(block);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The newest block that fits without wasting more than a quarter.
  Block take(std::int64_t bytes) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto block = unused_.begin(); block != unused_.end(); ++block) {
        if (block->bytes < bytes || block->bytes > bytes + bytes / 4 + kHugePage) continue;
        const Block found = *block;
        unused_.erase(block);
        kept_ -= found.bytes;
        return found;
      }
    }
    return fresh((bytes + kHugePage - 1) / kHugePage * kHugePage);
  }

  void give_back(const Block& block) {
    if (blocks_ && blocks_->is_retired(static_cast<std::byte*>(block.memory))) return drop(block);
    const std::lock_guard<std::mutex> lock(mutex_);
    unused_.push_front(block);
    kept_ += block.bytes;
    while (kept_ > capacity_) {
      kept_ -= unused_.back().bytes;
      drop(unused_.back());
      unused_.pop_back();
    }
  }

  std::int64_t kept() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kept_;
  }

 private:
  Block fresh(std::int64_t bytes) {
    if (!blocks_) return private_block(bytes);
    try {
      return {blocks_->allocate(static_cast<std::size_t>(bytes)), bytes};
    } catch (const CommError&) {
      return private_block(bytes);  // slower, but there
    }
  }

  void drop(const Block& block) {
    if (blocks_ && blocks_->free(static_cast<std::byte*>(block.memory))) return;
    munmap(block.memory, static_cast<std::size_t>(block.bytes));
  }

  std::shared_ptr<shm::Blocks> blocks_;
  std::mutex mutex_;
  std::list<Block> unused_;  // newest first
  std::int64_t kept_ = 0;
  std::int64_t capacity_;
};

Buffers::Buffers(std::shared_ptr<shm::Blocks> blocks, std::int64_t capacity)
    : pool_(std::make_shared<Pool>(std::move(blocks), capacity)) {}

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
