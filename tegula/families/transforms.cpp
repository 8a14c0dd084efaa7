// Fourier transforms over several dims of which some are cut: dims that are whole are transformed
// first, then each cut dim by itself, for which its rule moves the cut to another dim. All travels
// once per cut dim, and nothing is gathered.
#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

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

template <Values (*run)(Arguments)>
Recipe make_transform(const Call& call) {
  return has_cut_among_several(call) ? run : nullptr;
}

}  // namespace

const RecipeTable& transform_recipes() {
  static const RecipeTable table = {
      {"_fft_c2c", make_transform<complex_transform>},
      {"_fft_r2c", make_transform<transform_of_reals>},
      {"_fft_c2r", make_transform<transform_to_reals>},
  };
  return table;
}

}  // namespace tegula::inner::families
