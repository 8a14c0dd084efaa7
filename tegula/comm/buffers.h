// Memory for results that stays warm: a block that a dead tensor gave back serves the next result
// of about its size, without the page faults of fresh memory (which make large ones five times
// slower) and without the work of malloc (an eighth of a small all-reduce).
//
// Where the ranks are processes of one host, large results are in shared memory (shm/blocks.h), if
// there is enough: a child that the process forks shares them, too, instead of getting a copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace tegula::inner::shm {
class Blocks;
}

namespace tegula::inner::comm {

// Any thread. Tensors may outlive the object.
class Buffers {
 public:
  // Keeps at most this many bytes of unused large blocks.
  explicit Buffers(std::shared_ptr<shm::Blocks> blocks = nullptr,
                   std::int64_t capacity = std::int64_t{512} << 20);

  // A contiguous CPU tensor of undefined values.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype);

  // Bytes of unused large blocks.
  std::int64_t kept() const;

  class Pool;
  class Shelf;

 private:
  c10::DataPtr take_large(std::int64_t bytes);

  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace tegula::inner::comm
