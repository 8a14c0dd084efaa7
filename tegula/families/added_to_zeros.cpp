// What libtorch adds to new zeros, or writes to them: gradients of what was picked by index. The
// zeros are cut as what is added, and where that is cut along the dim the whole owes a sum.
#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/call_tensors.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/payload/guards.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula::inner::families {
namespace {

using Sizes = std::vector<std::int64_t>;

// Zeros of a shape with `values` added at `index` along the dim; index and values have one shape.
// What is cut along the dim owes a sum: every rank adds what it has.
at::Tensor added_to_zeros(const at::Tensor& values, const at::Tensor& index, std::int64_t dim,
                          const Sizes& shape) {
  const bool values_lead = is_spread(values);
  const Payload& leading = *payload_in(values_lead ? values : index);
  const DTensorSpec from = with_reductions_done(leading.spec());
  const auto tile_of = [&](const at::Tensor& one) {
    const TensorMeta meta(one.sizes().vec(), dtype_of(one.scalar_type()));
    return tile_at(one, from.with_meta(meta), leading.world());
  };
  const DTensorSpec whole = with_dim_whole(from, dim);
  Placements placements = whole.placements();
  for (const CutAxis& axis : from.dim_cuts()[static_cast<std::size_t>(dim)].axes()) {
    placements[axis.axis] = Partial(ReduceOp::Sum);
  }
  const DTensorSpec to(whole.mesh(), placements, whole.shard_order(),
                       TensorMeta(shape, dtype_of(values.scalar_type())));
  const at::Tensor places = tile_of(index);
  const at::Tensor zeros =
      at::zeros(local_shape(to, *leading.coordinate()), at::TensorOptions(values.scalar_type()));
  return outer_tensor(zeros.scatter_add_(dim, places, tile_of(values)), to, leading.world());
}

bool can_be_added(const Call& call, const at::Tensor& values, const at::Tensor& index,
                  std::int64_t dim, const Sizes& shape) {
  if (is_followed(call) || !has_tiles(call) || values.dim() == 0) return false;
  if (values.sizes() != index.sizes()) return false;
  if (!is_spread(values) && !is_spread(index)) return false;
  for (std::int64_t k = 0; k < values.dim(); ++k) {
    if (k != dim && shape[static_cast<std::size_t>(k)] != values.size(k)) return false;
  }
  return shape.size() == values.sizes().size();
}

template <std::size_t dim_at, std::size_t index_at>
Recipe make_scattered(const Call& call) {
  const Arguments a = call.arguments();
  const bool is_sparse = index_at == 3 && a.back().toBool();
  const at::Tensor& self = tensor_at(a, 1);
  const at::Tensor& index = tensor_at(a, index_at);
  if (is_sparse || self.dim() == 0) return nullptr;
  const std::int64_t dim = at::maybe_wrap_dim(a[dim_at].toInt(), self.dim());
  const Sizes shape = self.sizes().vec();
  if (!can_be_added(call, tensor_at(a, 0), index, dim, shape)) return nullptr;
  return [dim, shape](Arguments given) -> Values {
    return {added_to_zeros(tensor_at(given, 0), tensor_at(given, index_at), dim, shape)};
  };
}

// (grad, input_sizes, dim, index)
Recipe make_index_select_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& grad = tensor_at(a, 0);
  const Sizes shape = a[1].toIntVector();
  if (grad.dim() == 0 || tensor_at(a, 3).dim() != 1) return nullptr;
  const std::int64_t dim = at::maybe_wrap_dim(a[2].toInt(), grad.dim());
  const auto expanded = [dim](const at::Tensor& index, const at::Tensor& like) {
    Sizes sizes(static_cast<std::size_t>(like.dim()), 1);
    sizes[static_cast<std::size_t>(dim)] = index.size(0);
    return index.view(sizes).expand_as(like);
  };
  if (grad.size(dim) != tensor_at(a, 3).size(0)) return nullptr;
  if (!can_be_added(call, grad, expanded(tensor_at(a, 3), grad), dim, shape)) return nullptr;
  return [dim, shape, expanded](Arguments given) -> Values {
    const at::Tensor& values = tensor_at(given, 0);
    return {added_to_zeros(
        values, expanded(tensor_at(given, 3), values).clone(at::MemoryFormat::Contiguous), dim,
        shape)};
  };
}

// (grad, input, mask)
Recipe make_masked_select_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& input = tensor_at(a, 1);
  if (!has_tiles(call) || !is_any_spread(call) || input.dim() == 0 || input.size(0) < 2 ||
      input.sizes() != tensor_at(a, 2).sizes() || StrictMode::is_on() ||
      input.scalar_type() != tensor_at(a, 0).scalar_type()) {
    return nullptr;
  }
  const at::Tensor* spread = nullptr;
  for (std::size_t k = 0; k < 3; ++k) {
    if (!payload_in(tensor_at(a, k))) return nullptr;
    if (is_spread(tensor_at(a, k)) && only_cut_dim(tensor_at(a, k))) spread = &tensor_at(a, k);
  }
  if (!spread) return nullptr;
  Placements placements = payload_in(*spread)->spec().placements();
  for (Placement& placement : placements) {
    placement = as_shard(placement) ? Placement(Shard(0)) : Placement(Replicate());
  }
  const TensorMeta meta(input.sizes().vec(), dtype_of(input.scalar_type()));
  return [zeros = DTensorSpec(call.mesh(), placements, meta),
          world = call.world()](Arguments given) -> Values {
    const Coordinate at = *zeros.mesh().coordinate_of(world.rank());
    const at::Tensor tile =
        at::zeros(local_shape(zeros, at), at::TensorOptions(scalar_type_of(zeros.meta().dtype())));
    return {at::masked_scatter(outer_tensor(tile, zeros, world), tensor_at(given, 2),
                               tensor_at(given, 0))};
  };
}

}  // namespace

const RecipeTable& zeros_recipes() {
  static const RecipeTable table = {
      {"gather_backward", make_scattered<2, 3>},
      {"cummaxmin_backward", make_scattered<3, 2>},
      {"index_select_backward", make_index_select_backward},
      {"masked_select_backward", make_masked_select_backward},
  };
  return table;
}

}  // namespace tegula::inner::families
