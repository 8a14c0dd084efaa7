// The idea: small results come from lists by powers of two (Shelf), large ones are whole huge pages
// that are kept (Pool), in shared memory if there is enough. A tensor gives its memory back itself.
#include "tegula/comm/buffers.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <list>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "tegula/base/process.h"
#include "tegula/comm/shm/blocks.h"

namespace tegula::inner::comm {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;

struct Block {
  void* memory;
  std::int64_t bytes;
};

Block private_block(std::int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw CommError("not enough memory for a result")
        .fact("bytes", std::to_string(bytes))
        .hint("free memory, or raise the limit of this container or user (ulimit -v)");
  }
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

  // A forked child keeps what it has: the lock may be held, and the memory is its parent's.
  void give_back(const Block& block) {
    if (!home_.is_here()) return;
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

  HomeProcess home_;
  std::shared_ptr<shm::Blocks> blocks_;
  std::mutex mutex_;
  std::list<Block> unused_;  // newest first
  std::int64_t kept_ = 0;
  std::int64_t capacity_;
};

// Lists of unused regions of memory, one list per power of two. A region in use keeps the shelf.
class Buffers::Shelf : public std::enable_shared_from_this<Shelf> {
 public:
  Shelf() = default;
  ~Shelf() {
    for (const std::vector<Head*>& heads : unused_) {
      for (Head* head : heads) std::free(head);
    }
  }
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  c10::DataPtr take(std::int64_t bytes) {
    const std::size_t list = std::bit_width(static_cast<std::uint64_t>(bytes) / sizeof(Head));
    Head* head = taken_from(list);
    if (head == nullptr) head = fresh(list);
    head->shelf = shared_from_this();
    return {head + 1, head, &Shelf::give_back, at::kCPU};
  }

 private:
  struct alignas(64) Head {
    std::size_t list;
    std::shared_ptr<Shelf> shelf;
  };
  static constexpr std::size_t kLists = 16;
  static constexpr std::size_t kKept = 16;  // of each list

  Head* taken_from(std::size_t list) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (unused_[list].empty()) return nullptr;
    Head* head = unused_[list].back();
    unused_[list].pop_back();
    return head;
  }

  static Head* fresh(std::size_t list) {
    void* memory = std::aligned_alloc(alignof(Head), sizeof(Head) + (sizeof(Head) << list));
    if (memory == nullptr) throw std::bad_alloc();
    return new (memory) Head{list, nullptr};
  }

  static void give_back(void* memory) {
    Head* head = static_cast<Head*>(memory);
    const std::shared_ptr<Shelf> shelf = std::move(head->shelf);
    if (!shelf->home_.is_here()) return;  // as in Pool
    const std::lock_guard<std::mutex> lock(shelf->mutex_);
    std::vector<Head*>& heads = shelf->unused_[head->list];
    if (heads.size() < kKept) {
      heads.push_back(head);
    } else {
      std::free(head);
    }
  }

  HomeProcess home_;
  std::mutex mutex_;
  std::array<std::vector<Head*>, kLists> unused_;
};

Buffers::Buffers(std::shared_ptr<shm::Blocks> blocks, std::int64_t capacity)
    : pool_(std::make_shared<Pool>(std::move(blocks), capacity)),
      shelf_(std::make_shared<Shelf>()) {}

c10::DataPtr Buffers::take_large(std::int64_t bytes) {
  struct Lease {
    std::shared_ptr<Pool> pool;
    Block block;
  };
  auto* lease = new Lease{pool_, pool_->take(bytes)};
  return {lease->block.memory, lease,
          [](void* memory) {
            const std::unique_ptr<Lease> ended(static_cast<Lease*>(memory));
            ended->pool->give_back(ended->block);
          },
          at::kCPU};
}

at::Tensor Buffers::empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto bytes = static_cast<std::int64_t>(c10::multiply_integers(sizes) *
                                               static_cast<std::int64_t>(c10::elementSize(dtype)));
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes),
                       bytes < shm::kWorthOffering ? shelf_->take(bytes) : take_large(bytes),
                       c10::GetCPUAllocator(), /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

std::int64_t Buffers::kept() const { return pool_->kept(); }

}  // namespace tegula::inner::comm
