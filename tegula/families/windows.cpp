#include "tegula/families/windows.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/spec/slices.h"

namespace tegula::inner {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -ceil_div(-a, b); }
std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

// Inputs that write to the outputs; and at least what it takes for the op's outputs to reach over
// the wanted ones, where the stride leaves gaps between windows.
WindowRun transposed_run(const Window& window, const Interval& outputs) {
  const std::int64_t first = outputs.begin + window.padding;
  const std::int64_t last = outputs.end() - 1 + window.padding;
  const std::int64_t begin =
      std::min(rounded_up(first - window.reach(), window.stride), floor_div(first, window.stride));
  const std::int64_t end =
      std::max(floor_div(last, window.stride), rounded_up(last - window.reach(), window.stride)) +
      1;
  return {{begin, end - begin}, first - begin * window.stride};
}

}  // namespace

WindowRun run_for(const Window& window, const Interval& outputs) {
  if (outputs.size == 0) return {};
  if (window.is_transposed) return transposed_run(window, outputs);
  const std::int64_t begin = outputs.begin * window.stride - window.padding;
  return {{begin, (outputs.size - 1) * window.stride + window.reach() + 1}, 0};
}

CutWindows::CutWindows(const World& world, const DTensorSpec& input, const DTensorSpec& output,
                       std::size_t first, const std::vector<Window>& windows)
    : window_count_(windows.size()) {
  const Coordinate here = input.mesh().coordinate_of(world.rank()).value();
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const std::size_t dim = first + k;
    const DimCut& cut = output.dim_cuts()[dim];
    outputs_.push_back(cut.intervals(here).front());
    if (!cut.is_cut()) continue;
    const auto wanted = [&](const Coordinate& at) {
      return std::vector<Interval>{run_for(windows[k], cut.intervals(at).front()).input};
    };
    const auto signed_dim = static_cast<std::int64_t>(dim);
    cut_dims_.push_back({k, signed_dim, windows[k], run_for(windows[k], outputs_.back()),
                         DimExchange(world, input, signed_dim, wanted)});
  }
}

at::Tensor CutWindows::fetch(at::Tensor tile, const at::Scalar& outside) const {
  for (const CutDim& cut : cut_dims_) tile = cut.exchange.fetch(tile, outside);
  return tile;
}

at::Tensor CutWindows::add_up(at::Tensor given) const {
  for (auto cut = cut_dims_.rbegin(); cut != cut_dims_.rend(); ++cut) {
    given = cut->exchange.add_up(given);
  }
  return given;
}

at::Tensor CutWindows::empty_like_fetched(const at::Tensor& tile) const {
  std::vector<std::int64_t> shape = tile.sizes().vec();
  for (const CutDim& cut : cut_dims_) {
    shape[static_cast<std::size_t>(cut.dim)] = cut.run.input.size;
  }
  return at::empty(shape, tile.options().memory_format(tile.suggest_memory_format()));
}

at::Tensor CutWindows::wanted_of(at::Tensor outputs) const {
  for (const CutDim& cut : cut_dims_) {
    outputs = outputs.narrow(cut.dim, cut.run.skip, outputs_[cut.window].size);
  }
  return outputs;
}

at::Tensor CutWindows::with_unwanted(at::Tensor wanted) const {
  for (const CutDim& cut : cut_dims_) {
    if (!cut.slides.is_transposed) continue;
    const std::int64_t given =
        (cut.run.input.size - 1) * cut.slides.stride + cut.slides.reach() + 1;
    const std::int64_t after = given - cut.run.skip - wanted.size(cut.dim);
    std::vector<std::int64_t> pads(static_cast<std::size_t>(2 * (wanted.dim() - cut.dim)), 0);
    pads[pads.size() - 2] = cut.run.skip;
    pads.back() = after;
    wanted = at::constant_pad_nd(wanted, pads);
  }
  return wanted;
}

std::vector<std::int64_t> CutWindows::input_begins() const {
  std::vector<std::int64_t> begins(window_count_, 0);
  for (const CutDim& cut : cut_dims_) begins[cut.window] = cut.run.input.begin;
  return begins;
}

std::vector<std::int64_t> CutWindows::where_not_cut(std::vector<std::int64_t> per_window) const {
  for (const CutDim& cut : cut_dims_) per_window[cut.window] = 0;
  return per_window;
}

bool is_cut_from(const DTensorSpec& spec, std::size_t first) {
  const auto& cuts = spec.dim_cuts();
  return std::any_of(cuts.begin() + static_cast<std::ptrdiff_t>(first), cuts.end(),
                     [](const DimCut& cut) { return cut.is_cut(); });
}

std::vector<bool> dims_from(std::size_t first, std::size_t ndim) {
  std::vector<bool> dims(ndim, true);
  std::fill_n(dims.begin(), first, false);
  return dims;
}

std::vector<std::int64_t> per_window(const std::vector<std::int64_t>& given, std::size_t windows,
                                     const std::vector<std::int64_t>& otherwise) {
  if (given.empty()) return otherwise;
  return given.size() == 1 ? std::vector<std::int64_t>(windows, given.front()) : given;
}

TensorMeta image_meta(const Shape& shape, at::MemoryFormat format, DType dtype) {
  const at::Tensor image =
      at::empty(shape, at::TensorOptions(at::kByte).device(at::kMeta).memory_format(format));
  return {shape, image.strides().vec(), dtype};
}

}  // namespace tegula::inner
