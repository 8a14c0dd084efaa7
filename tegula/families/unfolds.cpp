// Windows that overlap, as a dim of their own, where the dim over which they slide is cut: each
// rank fetches what its windows reach into, and has the windows whose first elements lie there, or
// about as many. The gradient goes the other way: what was fetched is added up where it came from.
#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/fetch_plan.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/redistribute/dim_exchange.h"

namespace tegula::inner::families {
namespace {

struct Windows {
  std::int64_t dim, size, step;

  std::int64_t count_in(std::int64_t length) const { return (length - size) / step + 1; }
  // The elements that a run of windows covers.
  Interval covered(const Interval& windows) const {
    return {windows.begin * step, windows.size == 0 ? 0 : (windows.size - 1) * step + size};
  }
};

DTensorSpec with_shape(const DTensorSpec& spec, const Shape& shape) {
  return {spec.mesh(), spec.placements(), spec.shard_order(),
          TensorMeta(shape, spec.meta().dtype())};
}

// The spec of a tensor like another but along one dim, which the same axis cuts.
DTensorSpec resized(const DTensorSpec& spec, std::int64_t dim, std::int64_t size) {
  Shape shape = spec.shape();
  shape[static_cast<std::size_t>(dim)] = size;
  std::vector<bool> moved(shape.size(), false);
  moved[static_cast<std::size_t>(dim)] = true;
  return cut_alike(spec, TensorMeta(shape, spec.meta().dtype()), moved);
}

// (self, dimension, size, step)
at::Tensor unfolded(const at::Tensor& self, const Windows& windows) {
  const Payload& payload = *payload_in(self);
  const DTensorSpec from =
      cut_along_only(payload.spec(), std::vector<bool>(self.sizes().size(), true));
  const DTensorSpec counted = resized(from, windows.dim, windows.count_in(self.size(windows.dim)));
  const DimExchange exchange(payload.world(), from, windows.dim, [&](const Coordinate& at) {
    return std::vector<Interval>{windows.covered(run_at(counted, windows.dim, at))};
  });
  const at::Tensor fetched = exchange.fetch(payload.resolved_tile(), 0);
  Shape shape = counted.shape();
  shape.push_back(windows.size);
  const DTensorSpec to = with_shape(counted, shape);
  std::vector<std::int64_t> none = fetched.sizes().vec();
  none.push_back(windows.size);
  const at::Tensor tile = fetched.size(windows.dim) == 0
                              ? at::empty(none, fetched.options())
                              : fetched.unfold(windows.dim, windows.size, windows.step);
  return outer_tensor(tile.contiguous(), to, payload.world());
}

// None if there are no such windows.
std::optional<Windows> windows_of(const at::Tensor& x, std::int64_t dim, std::int64_t size,
                                  std::int64_t step) {
  if (x.dim() == 0 || size < 1 || step < 1) return std::nullopt;
  return Windows{at::maybe_wrap_dim(dim, x.dim()), size, step};
}

Recipe make_unfold_copy(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const auto windows = windows_of(self, a[1].toInt(), a[2].toInt(), a[3].toInt());
  const bool is_exchanged = windows && self.numel() > 0 && only_axis_along(self, windows->dim) &&
                            windows->size <= self.size(windows->dim);
  if (!is_exchanged) {
    if (!payload_in(self)) return nullptr;
    return [](Arguments given) -> Values {
      return {tensor_at(given, 0)
                  .unfold(given[1].toInt(), given[2].toInt(), given[3].toInt())
                  .clone(at::MemoryFormat::Contiguous)};
    };
  }
  return [windows = *windows](Arguments given) -> Values {
    return {unfolded(with_sum_paid(tensor_at(given, 0)), windows)};
  };
}

// Windows that are cut: what lies under them is added up where the elements are.
at::Tensor folded(const at::Tensor& grad, const Windows& windows, const Shape& shape) {
  const Payload& payload = *payload_in(grad);
  const DTensorSpec& spec = payload.spec();
  const Shape counted(spec.shape().begin(), spec.shape().end() - 1);
  const DTensorSpec to =
      resized(with_shape(spec, counted), windows.dim, shape[static_cast<std::size_t>(windows.dim)]);
  const DimExchange exchange(payload.world(), to, windows.dim, [&](const Coordinate& at) {
    return std::vector<Interval>{windows.covered(run_at(spec, windows.dim, at))};
  });
  const at::Tensor tile = payload.resolved_tile();
  std::vector<std::int64_t> sizes(tile.sizes().begin(), tile.sizes().end() - 1);
  std::int64_t& length = sizes[static_cast<std::size_t>(windows.dim)];
  length = windows.covered({0, length}).size;
  const at::Tensor given =
      length == 0 ? at::zeros(sizes, tile.options())
                  : at::unfold_backward(tile, sizes, windows.dim, windows.size, windows.step);
  return outer_tensor(exchange.add_up(given).contiguous(), to, payload.world());
}

// Each rank has some elements of every window, and the whole owes a sum.
at::Tensor folded_parts(const at::Tensor& grad, const Windows& windows, const Shape& shape) {
  const Payload& payload = *payload_in(grad);
  const std::int64_t last = grad.dim() - 1;
  const Interval run = run_at(payload.spec(), last, *payload.coordinate());
  const at::Tensor tile = payload.resolved_tile();
  const at::Tensor whole = at::zeros(shape, tile.options());
  if (run.size > 0 && tile.numel() > 0) {
    std::vector<std::int64_t> sizes = shape;
    std::int64_t& length = sizes[static_cast<std::size_t>(windows.dim)];
    length = (tile.size(windows.dim) - 1) * windows.step + run.size;
    whole.narrow(windows.dim, run.begin, length)
        .copy_(at::unfold_backward(tile, sizes, windows.dim, run.size, windows.step));
  }
  Placements placements = payload.spec().placements();
  placements[*only_axis_along(grad, last)] = Partial(ReduceOp::Sum);
  return outer_tensor(whole,
                      DTensorSpec(payload.spec().mesh(), placements,
                                  TensorMeta(shape, payload.spec().meta().dtype())),
                      payload.world());
}

// (grad_in, input_sizes, dim, size, step)
Recipe make_unfold_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& grad = tensor_at(a, 0);
  const std::optional<std::int64_t> cut = only_cut_dim(grad);
  const Shape shape = a[1].toIntVector();
  if (!cut || shape.empty() || grad.numel() == 0 ||
      grad.dim() != static_cast<std::int64_t>(shape.size()) + 1) {
    return nullptr;
  }
  const std::int64_t dim = at::maybe_wrap_dim(a[2].toInt(), grad.dim() - 1);
  const Windows windows{dim, a[3].toInt(), a[4].toInt()};
  const bool fits = windows.size == grad.size(-1) && windows.step > 0 &&
                    windows.count_in(shape[static_cast<std::size_t>(dim)]) == grad.size(dim);
  const bool is_last = *cut == grad.dim() - 1;
  if (!fits || (*cut != dim && !is_last)) return nullptr;
  return [windows, shape, is_last](Arguments given) -> Values {
    const at::Tensor paid = with_sum_paid(tensor_at(given, 0));
    return {is_last ? folded_parts(paid, windows, shape) : folded(paid, windows, shape)};
  };
}

// Short-time Fourier transforms -------------------------------------------------------------------

// Where the arguments are: with or without those that say how the signal is padded.
struct Form {
  std::size_t center, normalized;  // center 0: not padded
};
constexpr Form kWithCenter{5, 7};
constexpr Form kPlain{0, 5};

std::int64_t number_at(const c10::IValue& given, std::int64_t otherwise) {
  return given.isNone() ? otherwise : given.toInt();
}

at::Tensor padded(const at::Tensor& x, std::int64_t by, std::string_view mode) {
  std::vector<std::int64_t> three(static_cast<std::size_t>(3 - x.dim()), 1);
  three.insert(three.end(), x.sizes().begin(), x.sizes().end());
  const at::Tensor longer = at::pad(x.reshape(three), {by, by}, mode);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = longer.size(-1);
  return longer.reshape(shape);
}

// libtorch takes the frames by strides. Only with a window of n_fft elements, or none.
template <const Form& form>
Recipe make_stft(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const std::int64_t n = a[1].toInt();
  const bool is_signal = self.dim() == 1 || self.dim() == 2;
  if (!is_signal || !is_spread(self) || !is_floating(self)) return nullptr;
  if (n < 1 || number_at(a[2], n / 4) < 1 || number_at(a[3], n) != n) return nullptr;
  const bool has_window = a[4].isTensor() && a[4].toTensor().defined();
  if (has_window && (a[4].toTensor().is_complex() || a[4].toTensor().numel() != n)) return nullptr;
  const bool pads = form.center != 0 && a[form.center].toBool();
  const std::int64_t length = self.size(-1) + (pads ? n / 2 * 2 : 0);
  if (length < n || (pads && self.size(-1) <= n / 2)) return nullptr;
  const c10::IValue& is_half = a[form.normalized + 1];
  if (self.is_complex() && !is_half.isNone() && is_half.toBool()) return nullptr;
  const c10::IValue& as_complex = a[form.normalized + 2];
  const std::size_t align = form.normalized + 3;  // not in libtorch 2.6
  const bool says_what = !as_complex.isNone() || self.is_complex();
  const bool aligns = a.size() > align && !a[align].isNone() && a[align].toBool();
  if (!says_what || aligns) return nullptr;
  return [pads, n](Arguments given) -> Values {
    at::Tensor x = tensor_at(given, 0);
    if (pads) x = padded(x, n / 2, given[form.center + 1].toStringView());
    at::Tensor frames = at::unfold_copy(x, -1, n, number_at(given[2], n / 4));
    if (given[4].isTensor() && given[4].toTensor().defined()) frames = frames * given[4].toTensor();
    const c10::IValue& half = given[form.normalized + 1];
    const c10::IValue& complex = given[form.normalized + 2];
    const std::int64_t scale = given[form.normalized].toBool() ? 1 : 0;
    const std::int64_t last = frames.dim() - 1;
    const at::Tensor numbers =
        frames.is_complex() ? at::_fft_c2c(frames, {last}, scale, /*forward=*/true)
                            : at::_fft_r2c(frames, {last}, scale, half.isNone() || half.toBool());
    const at::Tensor result = numbers.transpose(-1, -2);
    return {complex.isNone() || complex.toBool() ? result : at::view_as_real(result)};
  };
}

}  // namespace

const RecipeTable& unfold_recipes() {
  static const RecipeTable table = {
      {"unfold_copy", make_unfold_copy},
      {"unfold_backward", make_unfold_backward},
      {"stft", make_stft<kPlain>},
      {"stft.center", make_stft<kWithCenter>},
  };
  return table;
}

}  // namespace tegula::inner::families
