#include "tegula/comm/tensor_head.h"

#include <algorithm>
#include <cstring>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner::comm {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw CommError("a message came whose head cannot be true: " + why)
      .hint("send_with_shape goes with recv_with_shape, and send with recv");
}

DType checked_dtype(std::int32_t number) {
  for (DType dtype : all_dtypes()) {
    if (static_cast<std::int32_t>(dtype) == number) return dtype;
  }
  refuse("there is no dtype " + std::to_string(number));
}

TensorMeta checked_meta(Shape shape, DType dtype) {
  try {
    return {std::move(shape), dtype};
  } catch (const UsageError& error) {
    refuse(error.sentence());
  }
}

}  // namespace

TensorHead head_of(const TensorMeta& tensor) {
  const std::size_t dims = tensor.shape().size();
  if (dims > TensorHead::kMostDims) {
    throw UsageError("a message cannot carry a shape of " + std::to_string(dims) + " dims")
        .hint("reshape the tensor to at most " + std::to_string(TensorHead::kMostDims) + " dims");
  }
  TensorHead head;
  head.bytes = tensor.numel() * size_of(tensor.dtype());
  head.dtype = static_cast<std::int32_t>(tensor.dtype());
  head.dims = static_cast<std::int32_t>(dims);
  std::copy(tensor.shape().begin(), tensor.shape().end(), head.sizes.begin());
  return head;
}

TensorMeta meta_in(std::span<const std::byte> memory) {
  TensorHead head;
  if (memory.size() != sizeof(head)) refuse(std::to_string(memory.size()) + " bytes are no head");
  std::memcpy(static_cast<void*>(&head), memory.data(), sizeof(head));
  if (head.mark != TensorHead::kMark) refuse("it does not begin as a head does");
  if (head.dims < 0 || head.dims > static_cast<std::int32_t>(TensorHead::kMostDims)) {
    refuse("it has " + std::to_string(head.dims) + " dims");
  }
  const DType dtype = checked_dtype(head.dtype);
  TensorMeta meta = checked_meta(Shape(head.sizes.begin(), head.sizes.begin() + head.dims), dtype);
  if (meta.numel() * size_of(dtype) != head.bytes) {
    refuse(to_string(meta) + " does not have " + std::to_string(head.bytes) + " bytes");
  }
  return meta;
}

}  // namespace tegula::inner::comm
