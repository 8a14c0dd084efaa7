// Tensors whose chunks are joined: each is padded to whole chunks, the chunks become rows, and rows
// are joined.
#include <ATen/ATen.h>

#include "tegula/families/call_tensors.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"

namespace tegula::inner::families {
namespace {

using Sizes = std::vector<std::int64_t>;

// [..., n, rest...] -> [..., chunks, elements of a chunk]
at::Tensor chunks_as_rows(const at::Tensor& tensor, std::int64_t dim, std::int64_t chunks) {
  const std::int64_t per_chunk = (tensor.size(dim) + chunks - 1) / chunks;
  Sizes pads(static_cast<std::size_t>(2 * (tensor.dim() - dim)), 0);
  pads.back() = per_chunk * chunks - tensor.size(dim);
  at::Tensor padded = at::constant_pad_nd(with_sum_paid(tensor), pads);
  const std::optional<std::int64_t> cut = only_cut_dim(padded);
  if (cut && *cut > dim) padded = cut_along(padded, dim);
  padded = cut_by_units(padded, dim, per_chunk);
  Sizes shape = tensor.sizes().slice(0, static_cast<std::size_t>(dim)).vec();
  shape.push_back(chunks);
  shape.push_back(-1);
  return padded.clone(at::MemoryFormat::Contiguous).view(shape);
}

// (tensors, dim, num_chunks)
Recipe make_chunk_cat(const Call& call) {
  const Arguments a = call.arguments();
  const std::int64_t chunks = a[2].toInt();
  if (!has_tiles(call) || !is_any_spread(call) || StrictMode::is_on() || chunks < 1) return nullptr;
  const std::int64_t dims = call.tensors().front().tensor.dim();
  const std::int64_t dim = a[1].toInt() < 0 ? a[1].toInt() + dims : a[1].toInt();
  if (dim < 0) return nullptr;
  for (const TensorPlace& place : call.tensors()) {
    const at::Tensor& tensor = place.tensor;
    const bool is_simple = place.payload && tensor.dim() > dim && tensor.numel() > 0 &&
                           (a[1].toInt() >= 0 || tensor.dim() == dims) &&
                           tensor.scalar_type() == call.tensors().front().tensor.scalar_type();
    if (!is_simple || (is_spread(tensor) && !only_cut_dim(tensor))) return nullptr;
  }
  return [dim](Arguments given) -> Values {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& tensor : given[0].toTensorVector()) {
      rows.push_back(chunks_as_rows(tensor, dim, given[2].toInt()));
    }
    return {at::cat(rows, dim + 1)};
  };
}

}  // namespace

const RecipeTable& chunk_recipes() {
  static const RecipeTable table = {{"_chunk_cat", make_chunk_cat}};
  return table;
}

}  // namespace tegula::inner::families
