// Fourier transforms over several dims of which some are cut: dims that are whole are transformed
// first, then each cut dim by itself, for which its rule moves the cut to another dim. All travels
// once per cut dim, and nothing is gathered. One vector that is cut has no other dim
// (vector_transforms.h).
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/families/vector_transforms.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"

namespace tegula::inner::families {
namespace {

using DimList = std::vector<std::int64_t>;

// (self, dims, ...): whether it is more than one dim's work and a cut one is among them.
bool has_cut_among_several(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const DimList dims = a[1].toIntVector();
  return has_tile(self) && self.dim() > 1 && dims.size() > 1 &&
         std::any_of(dims.begin(), dims.end(), [&](std::int64_t dim) { return is_cut(self, dim); });
}

// Complex to complex. The scale of a transform is the product of those of its dims.
at::Tensor transformed(at::Tensor x, DimList dims, std::int64_t scale, bool forward) {
  while (!dims.empty()) {
    const auto first_cut = std::stable_partition(dims.begin(), dims.end(),
                                                 [&](std::int64_t dim) { return !is_cut(x, dim); });
    const auto end = first_cut == dims.begin() ? first_cut + 1 : first_cut;
    x = at::_fft_c2c(x, DimList(dims.begin(), end), scale, forward);
    dims.erase(dims.begin(), end);
  }
  return x;
}

DimList all_but_last(const DimList& dims) { return {dims.begin(), dims.end() - 1}; }

// (self, dims, scale, forward)
Values complex_transform(Arguments a) {
  return {transformed(tensor_at(a, 0), a[1].toIntVector(), a[2].toInt(), a[3].toBool())};
}

// (self, dims, scale, onesided): the last dim is the one whose real numbers become complex.
Values transform_of_reals(Arguments a) {
  const DimList dims = a[1].toIntVector();
  const at::Tensor last = at::_fft_r2c(tensor_at(a, 0), {dims.back()}, a[2].toInt(), a[3].toBool());
  return {transformed(last, all_but_last(dims), a[2].toInt(), /*forward=*/true)};
}

// (self, dims, scale, last size): the last dim becomes real, after the others.
Values transform_to_reals(Arguments a) {
  const DimList dims = a[1].toIntVector();
  const at::Tensor others =
      transformed(tensor_at(a, 0), all_but_last(dims), a[2].toInt(), /*forward=*/false);
  return {at::_fft_c2r(others, {dims.back()}, a[2].toInt(), a[3].toInt())};
}

// One vector --------------------------------------------------------------------------------------

// As libtorch counts them: none, by the root of the number of elements, by the number itself.
at::Tensor scaled(const at::Tensor& x, std::int64_t scale, std::int64_t n) {
  if (scale == 0) return x;
  const auto elements = static_cast<double>(n);
  return x.mul(1 / (scale == 1 ? std::sqrt(elements) : elements));
}

Recipe make_transform_of_vector(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const auto shape = shape_for_transform(self, self.numel());
  if (!shape) return nullptr;
  return [shape = *shape](Arguments a) -> Values {
    const at::Tensor x = with_sum_paid(tensor_at(a, 0));
    const Direction direction = a[3].toBool() ? Direction::Forward : Direction::Backward;
    return {scaled(transformed_vector(x, shape, direction), a[2].toInt(), x.numel())};
  };
}

// A single element at a frequency of its own is in the middle: only even numbers of reals.
Recipe make_transform_of_real_vector(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const auto shape = shape_for_transform(self, self.numel() / 2);
  if (!shape || self.numel() % 2 != 0) return nullptr;
  return [shape = *shape](Arguments a) -> Values {
    const at::Tensor x = with_sum_paid(tensor_at(a, 0));
    const std::int64_t n = x.numel();
    const at::Tensor half = scaled(transformed_reals(x, shape), a[2].toInt(), n);
    if (a[3].toBool()) return {half};
    const at::Tensor rest = at::conj_physical(at::flip(half.narrow(0, 1, n / 2 - 1), {0}));
    return {at::cat({half, rest})};
  };
}

Recipe make_transform_to_real_vector(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const std::int64_t n = call.arguments()[3].toInt();
  const auto shape = shape_for_transform(self, n / 2);
  if (!shape || n % 2 != 0 || self.numel() != n / 2 + 1) return nullptr;
  return [shape = *shape, n](Arguments a) -> Values {
    const at::Tensor x = with_sum_paid(tensor_at(a, 0));
    return {scaled(transformed_to_reals(x, shape), a[2].toInt(), n)};
  };
}

// What sends as much as the vector has is not done unasked.
template <Values (*run)(Arguments), MakeRecipe make_of_vector>
Recipe make_transform(const Call& call) {
  if (has_cut_among_several(call)) return run;
  return StrictMode::is_on() ? nullptr : make_of_vector(call);
}

}  // namespace

const RecipeTable& transform_recipes() {
  static const RecipeTable table = {
      {"_fft_c2c", make_transform<complex_transform, make_transform_of_vector>},
      {"_fft_r2c", make_transform<transform_of_reals, make_transform_of_real_vector>},
      {"_fft_c2r", make_transform<transform_to_reals, make_transform_to_real_vector>},
  };
  return table;
}

}  // namespace tegula::inner::families
