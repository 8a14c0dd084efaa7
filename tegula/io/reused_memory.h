// Memory for tensors that come and go together, kept when they go: pages that the system has given
// once are not asked for again, which costs as much as filling them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tegula::inner {

class ReusedMemory {
 public:
  // A row-major tensor on the host, with any values. Its memory is given to others after `reuse`.
  at::Tensor tensor(at::IntArrayRef sizes, at::ScalarType type);
  // None of the tensors is looked at any more.
  void reuse();

 private:
  struct Block {
    at::Tensor bytes;
    std::int64_t used = 0;
  };
  std::vector<Block> blocks_;
};

// Row-major tensors on the host, of one type and shape. Past the caches: what is copied is not read
// soon.
void copy_past_caches(const at::Tensor& to, const at::Tensor& from);

}  // namespace tegula::inner
