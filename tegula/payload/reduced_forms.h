// ReducedForms: what a tensor that owes a reduction is by other placements, remembered, so that it
// is reduced once however many ops read it.
//
// All ranks do the same to a tensor, so that all remember the same of it: what is remembered does
// not depend on the size of this rank's tile, on time, or on how long others keep the tensor. A
// write to the tensor, or to anything that shares its memory, makes it forgotten (write_count.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tegula/payload/write_count.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// Any thread.
class ReducedForms {
 public:
  // Of the whole tensor; larger ones are reduced each time they are read.
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20U;

  // Of a tensor that shares memory with all that have this count of writes to it.
  explicit ReducedForms(std::shared_ptr<WriteCount> memory) : memory_(std::move(memory)) {}

  // What `reduce` makes of the tile, placed as `to`, or what it made before in this epoch of the
  // world: an error may have come over some ranks before they could remember. Nobody may write to
  // it.
  at::Tensor find_or_make(const DTensorSpec& to, const at::Tensor& tile, std::uint32_t epoch,
                          const std::function<at::Tensor(const at::Tensor&)>& reduce);

 private:
  struct Form {
    DTensorSpec to;
    at::Tensor tile;
  };

  std::shared_ptr<WriteCount> memory_;
  std::mutex mutex_;
  std::uint64_t writes_ = 0;  // when the forms were made
  std::uint32_t epoch_ = 0;   // then
  std::vector<Form> forms_;
};

}  // namespace tegula::inner
