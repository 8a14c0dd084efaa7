// A send or a recv, as engines carry it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "tegula/comm/call.h"
#include "tegula/comm/region.h"
#include "tegula/comm/tensor_head.h"

namespace tegula::inner::comm {

struct Message {
  Call call;  // its kind says which
  int peer = 0;
  Region region;           // what is sent, or where it goes
  at::Tensor memory = {};  // of the region, if it is known yet

  // Of a message that carries its shape. A send has a head that goes before the region. A recv asks
  // `place_for` for the tensor to fill once the head came; what that throws, a CommError, breaks
  // the group.
  std::shared_ptr<const TensorHead> head = nullptr;
  std::function<at::Tensor(std::span<const std::byte> head)> place_for = nullptr;

  bool carries_shape() const { return head != nullptr || place_for != nullptr; }
};

}  // namespace tegula::inner::comm
