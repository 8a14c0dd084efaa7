// Shape, strides and their bytes are checked once, when it is made; from then on sums and products
// of them cannot overflow.
#include "tegula/spec/tensor_meta.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula {

using namespace inner;

namespace {

std::string shape_text(DType dtype, const Shape& shape) {
  return std::string(name_of(dtype)) + bracketed(shape);
}

void check_shape(const Shape& shape, DType dtype) {
  std::int64_t bytes = size_of(dtype);
  for (std::int64_t size : shape) {
    if (size < 0) {
      throw UsageError("a tensor cannot have a size of " + std::to_string(size))
          .fact("tensor", shape_text(dtype, shape))
          .hint("sizes are 0 or more");
    }
    // A size of 0 counts as 1 here: strides are computed so, and must not overflow either.
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      throw UsageError("a tensor cannot have more bytes than 63 bits count")
          .fact("tensor", shape_text(dtype, shape))
          .hint("check the sizes");
    }
  }
}

void check_stride(const Shape& shape, const Shape& stride, DType dtype) {
  if (stride.size() != shape.size()) {
    throw UsageError(
        "a tensor with " + counted(static_cast<std::int64_t>(shape.size()), "dim", "dims") +
        " cannot have " + counted(static_cast<std::int64_t>(stride.size()), "stride", "strides"))
        .fact("tensor", shape_text(dtype, shape))
        .fact("strides", bracketed(stride))
        .hint("give one stride per dim");
  }
  std::int64_t last = 0;  // the offset of the last element
  for (std::size_t dim = 0; dim < stride.size(); ++dim) {
    const std::int64_t step = stride[dim];
    if (step < 0) {
      throw UsageError("a tensor cannot have a stride of " + std::to_string(step))
          .fact("tensor", shape_text(dtype, shape))
          .fact("strides", bracketed(stride))
          .hint("strides are 0 or more");
    }
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(std::max<std::int64_t>(shape[dim] - 1, 0), step, &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      throw UsageError("the strides of a tensor reach further than 63 bits count")
          .fact("tensor", shape_text(dtype, shape))
          .fact("strides", bracketed(stride))
          .hint("check the strides");
    }
  }
}

// The step of the next slower dim.
std::int64_t step_over(std::int64_t step, std::int64_t size, const Shape& shape) {
  if (!__builtin_mul_overflow(step, std::max<std::int64_t>(size, 1), &step)) return step;
  throw UsageError("strides of these sizes do not fit in 63 bits")
      .fact("sizes", bracketed(shape))
      .hint("check the sizes");
}

}  // namespace

Shape row_major_strides(const Shape& shape) {
  Shape stride(shape.size());
  std::int64_t step = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    stride[dim] = step;
    if (dim > 0) step = step_over(step, shape[dim], shape);
  }
  return stride;
}

TensorMeta::TensorMeta(Shape shape, DType dtype) : shape_(std::move(shape)), dtype_(dtype) {
  check_shape(shape_, dtype);
  stride_ = row_major_strides(shape_);
}

TensorMeta::TensorMeta(Shape shape, Shape stride, DType dtype)
    : shape_(std::move(shape)), stride_(std::move(stride)), dtype_(dtype) {
  check_shape(shape_, dtype);
  check_stride(shape_, stride_, dtype);
}

std::int64_t TensorMeta::numel() const {
  return std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
}

std::size_t TensorMeta::hash() const {
  return Hasher().add_all(shape_).add_all(stride_).add(static_cast<std::uint64_t>(dtype_)).result();
}

std::string to_string(const TensorMeta& meta) {
  std::string text = shape_text(meta.dtype(), meta.shape());
  if (meta.stride() != row_major_strides(meta.shape()))
    text += " strides " + bracketed(meta.stride());
  return text;
}

std::ostream& operator<<(std::ostream& out, const TensorMeta& meta) {
  return out << to_string(meta);
}

TensorMeta parse_tensor_meta(Scanner& scan) {
  const DType dtype = parse_dtype(scan.identifier());
  scan.expect("[");
  Shape shape = scan.integers_until("]");
  if (!scan.accept_word("strides")) return {std::move(shape), dtype};
  scan.expect("[");
  Shape stride = scan.integers_until("]");
  return {std::move(shape), std::move(stride), dtype};
}

TensorMeta parse_tensor_meta(std::string_view text) {
  Scanner scan(text, "a tensor", "f32[8, 16]");
  TensorMeta meta = parse_tensor_meta(scan);
  scan.expect_end();
  return meta;
}

Shape dense_strides_like(const Shape& shape, const Shape& like_stride) {
  if (shape.size() != like_stride.size()) {
    throw UsageError("cannot lay out " +
                     counted(static_cast<std::int64_t>(shape.size()), "dim", "dims") +
                     " in the order of " +
                     counted(static_cast<std::int64_t>(like_stride.size()), "stride", "strides"))
        .fact("sizes", bracketed(shape))
        .fact("strides", bracketed(like_stride))
        .hint("give one stride per dim");
  }
  std::vector<std::size_t> order(shape.size());  // from the slowest dim to the fastest
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return like_stride[a] > like_stride[b]; });
  Shape stride(shape.size(), 0);
  std::int64_t step = 1;
  for (std::size_t index = order.size(); index-- > 0;) {
    const std::size_t dim = order[index];
    if (like_stride[dim] == 0) continue;
    stride[dim] = step;
    if (index > 0) step = step_over(step, shape[dim], shape);
  }
  return stride;
}

TensorMeta dense(const TensorMeta& meta) {
  const Shape& stride = meta.stride();
  if (std::find(stride.begin(), stride.end(), 0) != stride.end()) {
    return {meta.shape(), meta.dtype()};
  }
  return {meta.shape(), dense_strides_like(meta.shape(), stride), meta.dtype()};
}

}  // namespace tegula
