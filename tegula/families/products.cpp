// Products that libtorch composes of others, with something that gathers on the way.
#include <ATen/ATen.h>

#include "tegula/families/call_tensors.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

// (input1 [..., i], input2 [..., j], weight [o, i, j], bias [o]?): the bias is added in place, so
// that a sum which the product owes stays owed.
Values bilinear(Arguments a) {
  const at::Tensor& first = tensor_at(a, 0);
  const at::Tensor& second = tensor_at(a, 1);
  const at::Tensor& weight = tensor_at(a, 2);
  std::vector<std::int64_t> shape = first.sizes().vec();
  shape.back() = weight.size(0);
  const at::Tensor product =
      at::_trilinear(first.reshape({-1, first.size(-1)}), weight,
                     second.reshape({-1, second.size(-1)}), {1, 3}, {0}, {1, 2}, {2, 3});
  const at::Tensor result = product.reshape(shape);
  if (!is_given(a[3])) return {result};
  const Payload* payload = payload_in(result);
  const bool owes = payload && payload->spec().is_partial();
  return {owes ? result.add_(tensor_at(a, 3)) : result + tensor_at(a, 3)};
}

Recipe make_bilinear(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& first = tensor_at(a, 0);
  const at::Tensor& second = tensor_at(a, 1);
  const at::Tensor& weight = tensor_at(a, 2);
  const bool fits = first.dim() > 0 && first.dim() == second.dim() && weight.dim() == 3 &&
                    first.sizes().slice(0, static_cast<std::size_t>(first.dim() - 1)) ==
                        second.sizes().slice(0, static_cast<std::size_t>(second.dim() - 1)) &&
                    first.size(-1) == weight.size(1) && second.size(-1) == weight.size(2) &&
                    first.numel() > 0 && second.numel() > 0;
  const bool has_bias =
      !is_given(a[3]) || tensor_at(a, 3).sizes() == at::IntArrayRef({weight.size(0)});
  return fits && has_bias && is_any_spread(call) ? bilinear : nullptr;
}

// (sparse, dense), neither of them sparse here.
Recipe make_sparse_mm(const Call& call) {
  if (!has_tiles(call) || !is_any_spread(call)) return nullptr;
  return [](Arguments a) -> Values { return {at::mm(tensor_at(a, 0), tensor_at(a, 1))}; };
}

}  // namespace

const RecipeTable& product_recipes() {
  static const RecipeTable table = {
      {"bilinear", make_bilinear},
      {"_sparse_mm", make_sparse_mm},
  };
  return table;
}

}  // namespace tegula::inner::families
