// Repeating a tensor along a cut dim: each rank repeats its own shard, and the result is cut in
// blocks, one per repetition. Nothing is sent.
#include <ATen/ATen.h>

#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

using Sizes = std::vector<std::int64_t>;

// (self, repeats): each dim is one of repetitions and one of elements, for a while.
Values repeat(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const Sizes repeats = a[1].toIntVector();
  const std::size_t added = repeats.size() - static_cast<std::size_t>(self.dim());
  Sizes apart, expanded, joined;
  for (std::size_t dim = 0; dim < repeats.size(); ++dim) {
    const std::int64_t size = dim < added ? 1 : self.size(static_cast<std::int64_t>(dim - added));
    apart.insert(apart.end(), {1, size});
    expanded.insert(expanded.end(), {repeats[dim], size});
    joined.push_back(repeats[dim] * size);
  }
  return {self.reshape(apart).expand(expanded).clone(at::MemoryFormat::Contiguous).reshape(joined)};
}

Recipe make_repeat(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const Sizes repeats = call.arguments()[1].toIntVector();
  if (!has_tile(self) || self.numel() == 0 || repeats.size() < static_cast<std::size_t>(self.dim()))
    return nullptr;
  bool repeats_a_cut_dim = false;
  const std::size_t added = repeats.size() - static_cast<std::size_t>(self.dim());
  for (std::size_t dim = 0; dim < repeats.size(); ++dim) {
    if (repeats[dim] < 0) return nullptr;
    repeats_a_cut_dim = repeats_a_cut_dim || (dim >= added && repeats[dim] != 1 &&
                                              is_cut(self, static_cast<std::int64_t>(dim - added)));
  }
  return repeats_a_cut_dim ? repeat : nullptr;
}

}  // namespace

const RecipeTable& repeat_recipes() {
  static const RecipeTable table = {{"repeat", make_repeat}};
  return table;
}

}  // namespace tegula::inner::families
