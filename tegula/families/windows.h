// Ops that slide a window over dims of an image, where such a dim is cut: convolutions, pooling.
// The output is cut by the axes that cut the input. Each rank fetches the part of the input
// that its outputs read, what is padding included, and runs the op on that with no padding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tegula/redistribute/dim_exchange.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// How a window slides along one dim: output o reads the inputs o * stride - padding + k * dilation,
// k < kernel. Of a transposed convolution, input i adds to those outputs.
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  bool is_transposed = false;

  // From the first element that a window covers to the last.
  std::int64_t reach() const { return dilation * (kernel - 1); }
};

// What is done for a run of outputs: the op, without padding, on a run of inputs gives these
// outputs and, before and after them, some that are not wanted.
struct WindowRun {
  Interval input;         // may reach beyond the dim: zeros, or what the op pads with
  std::int64_t skip = 0;  // outputs given before the first one that is wanted
};
WindowRun run_for(const Window& window, const Interval& outputs);

class CutWindows {
 public:
  // `windows` are those of the dims from `first` on. Both specs cut these dims by the same axes in
  // the same order, the output in one run per rank. Not for ranks outside of the mesh.
  CutWindows(const World& world, const DTensorSpec& input, const DTensorSpec& output,
             std::size_t first, const std::vector<Window>& windows);

  // This rank's part of the input, and its transpose.
  at::Tensor fetch(at::Tensor tile, const at::Scalar& outside) const;
  at::Tensor add_up(at::Tensor given) const;
  // A tensor of the shape and type that fetch gives of a tile, its values undefined.
  at::Tensor empty_like_fetched(const at::Tensor& tile) const;

  // Of what the op gives for what was fetched, this rank's outputs; and its transpose, with zeros
  // for the outputs that are not wanted.
  at::Tensor wanted_of(at::Tensor outputs) const;
  at::Tensor with_unwanted(at::Tensor wanted) const;

  // This rank's outputs, and the first element that it fetches, per window.
  const std::vector<Interval>& outputs() const { return outputs_; }
  std::vector<std::int64_t> input_begins() const;
  // What the local op takes: these values where the dim is not cut, 0 where it is.
  std::vector<std::int64_t> where_not_cut(std::vector<std::int64_t> per_window) const;

 private:
  struct CutDim {
    std::size_t window;
    std::int64_t dim;
    Window slides;
    WindowRun run;
    DimExchange exchange;
  };
  std::size_t window_count_;
  std::vector<CutDim> cut_dims_;
  std::vector<Interval> outputs_;
};

// Whether some axis cuts one of the dims from `first` on.
bool is_cut_from(const DTensorSpec& spec, std::size_t first);

// Of `ndim` dims those from `first` on.
std::vector<bool> dims_from(std::size_t first, std::size_t ndim);

// A list argument with one number per window, or one for all; empty: `otherwise`.
std::vector<std::int64_t> per_window(const std::vector<std::int64_t>& given, std::size_t windows,
                                     const std::vector<std::int64_t>& otherwise);

// Dense strides of a result with the dims in memory as libtorch gives them to ops on images.
TensorMeta image_meta(const Shape& shape, at::MemoryFormat format, DType dtype);

}  // namespace tegula::inner
