// WriteCount: how often the memory that some tensors share was written to, so that what was made of
// them before the last write is not taken for what they are.
//
// All ranks do the same to a tensor, so that all count the same. Where a rank's tile was given to
// the user (to_local, from_local), its bytes are compared whenever the count is asked for: a write
// there that only some ranks do is a mismatch at their next communication.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>

#include "tegula/spec/dtype.h"

namespace tegula::inner {

// Any thread.
class WriteCount {
 public:
  // Of the whole tensor that the memory was made for.
  WriteCount(std::int64_t elements, DType dtype) : elements_(elements), dtype_(dtype) {}

  std::int64_t elements() const { return elements_; }
  DType dtype() const { return dtype_; }
  void note_write();
  // The tile's memory is in the user's hands from now on. O(tile), once.
  void note_exposed(const at::Tensor& tile);
  // The count, once writes that nobody told us of are in it. O(tile) if it is exposed.
  std::uint64_t count(const at::Tensor& tile);

 private:
  std::int64_t elements_;
  DType dtype_;
  std::mutex mutex_;
  std::uint64_t writes_ = 0;
  std::optional<std::size_t> hash_;  // if it is exposed: when it was last looked at
};

}  // namespace tegula::inner
