// TensorMeta: shape, strides and element type of a whole tensor.
//
// Printed f32[8, 16], or f32[8, 16] strides [1, 8] where the strides are not those of a row-major
// tensor. Immutable.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/spec/dtype.h"

namespace tegula {

class Scanner;

// Sizes or strides, one per tensor dim.
using Shape = std::vector<std::int64_t>;

// [2, 3, 4] -> [12, 4, 1]. As libtorch has it, a size of 0 counts as 1. UsageError if a stride does
// not fit in 63 bits.
Shape row_major_strides(const Shape& shape);

class TensorMeta {
 public:
  // Row-major strides. UsageError: a negative size, or more bytes than an int64 counts.
  TensorMeta(Shape shape, DType dtype);
  // UsageError also: not one stride per dim, or a negative stride. Stride 0 (an expanded dim) is
  // fine.
  TensorMeta(Shape shape, Shape stride, DType dtype);

  const Shape& shape() const { return shape_; }
  const Shape& stride() const { return stride_; }
  DType dtype() const { return dtype_; }
  std::int64_t ndim() const { return static_cast<std::int64_t>(shape_.size()); }
  std::int64_t numel() const;

  bool operator==(const TensorMeta&) const = default;
  std::size_t hash() const;

 private:
  Shape shape_;
  Shape stride_;
  DType dtype_;
};

// The same with dense strides, the dims in memory in the same order; row-major if a dim is
// expanded.
TensorMeta dense(const TensorMeta& meta);

std::string to_string(const TensorMeta& meta);
std::ostream& operator<<(std::ostream& out, const TensorMeta& meta);
TensorMeta parse_tensor_meta(std::string_view text);
TensorMeta parse_tensor_meta(Scanner& scan);

// Strides of a dense tensor of `shape` whose dims lie in memory in the order of `like_stride`
// (ties as in row-major order); where like_stride is 0 the result is 0. UsageError if there is not
// one stride per dim, or if a stride does not fit in 63 bits.
// [4, 8, 2] like [32, 1, 8] -> [16, 1, 8]
Shape dense_strides_like(const Shape& shape, const Shape& like_stride);

}  // namespace tegula
