#include "tegula/families/totals.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/rules/signatures.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula::inner::families {
namespace {

const DimCut& dim_cut_along(const DTensorSpec& spec, std::size_t dim) {
  return spec.dim_cuts()[dim];
}

// self's spec with other sizes along some dims, which are cut evenly by the axes that cut them now,
// or owe a reduction there.
DTensorSpec resized_along(const DTensorSpec& self, const Dims& dims, const Shape& shape,
                          const std::optional<Placement>& instead_of_cuts, DType dtype) {
  Placements placements = self.placements();
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (!shard || !dims[static_cast<std::size_t>(shard->dim())]) continue;
    placement = instead_of_cuts ? *instead_of_cuts : Placement(Shard(shard->dim()));
  }
  ShardOrder order;
  for (const ShardOrderEntry& entry : self.shard_order()) {
    const bool stays = !instead_of_cuts || !dims[static_cast<std::size_t>(entry.dim)];
    if (stays) order.push_back(entry);
  }
  return {self.mesh(), placements, order, TensorMeta(shape, dtype)};
}

Shape shape_with(const Shape& shape, const Dims& dims,
                 const std::function<std::int64_t(std::size_t)>& size_along) {
  Shape resized = shape;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (dims[dim]) resized[dim] = size_along(dim);
  }
  return resized;
}

}  // namespace

const at::Tensor& tensor_at(Arguments arguments, std::size_t index) {
  return arguments[index].toTensor();
}

bool is_given(const c10::IValue& tensor) {
  return tensor.isTensor() && tensor.toTensor().defined();
}

bool is_cut(const at::Tensor& tensor, std::int64_t dim) {
  const Payload* payload = payload_in(tensor);
  if (!payload || payload->link() || tensor.dim() == 0) return false;
  const std::int64_t wrapped = dim < 0 ? dim + tensor.dim() : dim;
  if (wrapped < 0 || wrapped >= tensor.dim()) return false;
  return dim_cut_along(payload->spec(), static_cast<std::size_t>(wrapped)).is_cut();
}

bool is_spread(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->link() && !payload->spec().is_replicated();
}

bool has_tile(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->link() && payload->coordinate();
}

at::Tensor with_sum_paid(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  return payload ? move_to(tensor, with_reductions_done(payload->spec()), CallMode::Sync, {})
                 : tensor;
}

// Dims --------------------------------------------------------------------------------------------

Dims one_dim(const at::Tensor& tensor, std::int64_t dim) {
  Dims dims(static_cast<std::size_t>(tensor.dim()), false);
  if (!dims.empty()) dims[wrapped_dim(dim, dims.size())] = true;
  return dims;
}

Dims dims_of(const at::Tensor& tensor, const c10::IValue& listed) {
  if (listed.isInt()) return one_dim(tensor, listed.toInt());
  Dims dims(static_cast<std::size_t>(tensor.dim()), false);
  if (dims.empty()) return dims;
  const std::vector<std::int64_t> list =
      listed.isNone() ? std::vector<std::int64_t>() : listed.toIntVector();
  for (const std::int64_t dim : list) dims[wrapped_dim(dim, dims.size())] = true;
  if (list.empty()) dims.assign(dims.size(), true);
  return dims;
}

std::vector<std::int64_t> listed(const Dims& dims) {
  std::vector<std::int64_t> list;
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    if (dims[dim]) list.push_back(static_cast<std::int64_t>(dim));
  }
  return list;
}

bool is_cut(const at::Tensor& tensor, const Dims& dims) {
  for (const std::int64_t dim : listed(dims)) {
    if (is_cut(tensor, dim)) return true;
  }
  return false;
}

std::int64_t count_of(const at::Tensor& tensor, const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : listed(dims)) count *= tensor.size(dim);
  return count;
}

bool has_empty_shard(const at::Tensor& tensor, const Dims& dims) {
  for (const std::int64_t dim : listed(dims)) {
    if (!is_cut(tensor, dim)) continue;
    const std::vector<std::int64_t> sizes = shard_sizes(*payload_of(tensor), dim);
    if (std::count(sizes.begin(), sizes.end(), 0) > 0) return true;
  }
  return false;
}

// Element types -----------------------------------------------------------------------------------

bool is_floating(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

at::Tensor in_type(const at::Tensor& tensor, at::ScalarType type) {
  const PayloadPtr payload = payload_of(tensor);
  if (tensor.scalar_type() == type) return tensor;
  if (!payload || payload->link()) return tensor.to(type);
  const TensorMeta meta = dense(payload->spec().meta());
  const DTensorSpec spec =
      payload->spec().with_meta(TensorMeta(meta.shape(), meta.stride(), dtype_of(type)));
  const at::Tensor tile = fresh_tile(spec, payload->world());
  if (payload->coordinate()) tile.copy_(payload->tile());
  return outer_tensor(tile, spec, payload->world());
}

at::Tensor to_add_up(const at::Tensor& tensor) {
  return in_type(tensor, sum_type(tensor.scalar_type()));
}

at::Tensor rounded_to(const at::Tensor& sum, at::ScalarType type) {
  return sum.scalar_type() == type ? sum : in_type(with_sum_paid(sum), type);
}

// Parts of tiles ----------------------------------------------------------------------------------

at::Tensor reduced_tile(const Payload& self, const Dims& dims, const at::Scalar& empty,
                        at::ScalarType type,
                        const std::function<at::Tensor(const at::Tensor&)>& reduce) {
  const at::Tensor tile = self.resolved_tile();
  if (count_of(tile, dims) > 0) return reduce(tile);
  std::vector<std::int64_t> shape = tile.sizes().vec();
  for (const std::int64_t dim : listed(dims)) shape[static_cast<std::size_t>(dim)] = 1;
  return at::full(shape, empty, tile.options().dtype(type));
}

at::Tensor owed_part(const at::Tensor& part, const Payload& self, const Dims& dims, ReduceOp op) {
  const Shape shape = shape_with(self.spec().shape(), dims, [](std::size_t) { return 1; });
  const DTensorSpec spec =
      resized_along(self.spec(), dims, shape, Partial(op), dtype_of(part.scalar_type()));
  return outer_tensor(part.contiguous(), spec, self.world());
}

at::Tensor part_per_shard(const at::Tensor& part, const Payload& self, const Dims& dims) {
  const Shape shape = shape_with(self.spec().shape(), dims, [&](std::size_t dim) {
    return dim_cut_along(self.spec(), dim).shard_count();
  });
  const DTensorSpec spec =
      resized_along(self.spec(), dims, shape, std::nullopt, dtype_of(part.scalar_type()));
  return outer_tensor(part.contiguous(), spec, self.world());
}

at::Tensor parts_of_all(const at::Tensor& part, const Payload& self, std::int64_t dim,
                        std::vector<std::int64_t> sizes) {
  const auto at = static_cast<std::size_t>(dim);
  const DimCut& cut = dim_cut_along(self.spec(), at);
  if (sizes.empty()) sizes.assign(static_cast<std::size_t>(cut.shard_count()), 1);
  Dims dims(self.spec().shape().size(), false);
  dims[at] = true;
  const Shape shape = shape_with(self.spec().shape(), dims, [&](std::size_t) {
    return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  });
  const DTensorSpec joined =
      resized_along(self.spec(), dims, shape, Replicate(), dtype_of(part.scalar_type()));
  std::vector<std::int64_t> ranks;
  for (const CutAxis& axis : cut.axes()) ranks.push_back(axis.ranks);
  const std::vector<Cut> cuts = ragged_cuts(ranks, sizes);
  Placements placements = joined.placements();
  for (std::size_t k = 0; k < cuts.size(); ++k)
    placements[cut.axes()[k].axis] = Shard(dim, cuts[k]);
  const DTensorSpec apart(self.spec().mesh(), placements, self.spec().shard_order(), joined.meta());
  return redistribute_tile(self.world(), part.contiguous(), apart, joined);
}

at::Tensor joined_along(const Payload& self, std::int64_t dim, const at::Tensor& tile) {
  Dims dims(self.spec().shape().size(), false);
  dims[static_cast<std::size_t>(dim)] = true;
  const Shape shape =
      shape_with(self.spec().shape(), dims, [&](std::size_t) { return tile.size(dim); });
  const DTensorSpec spec =
      resized_along(self.spec(), dims, shape, Replicate(), dtype_of(tile.scalar_type()));
  return outer_tensor(tile.contiguous(), spec, self.world());
}

std::int64_t shard_here(const Payload& self, std::int64_t dim) {
  const Coordinate at = *self.coordinate();
  std::int64_t shard = 0;
  for (const CutAxis& axis : dim_cut_along(self.spec(), static_cast<std::size_t>(dim)).axes()) {
    shard = shard * axis.ranks + at[axis.axis];
  }
  return shard;
}

std::vector<std::int64_t> shard_sizes(const Payload& self, std::int64_t dim) {
  const DimCut& cut = dim_cut_along(self.spec(), static_cast<std::size_t>(dim));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(cut.shard_count()), 0);
  for (const Share& share : cut.owners({0, cut.size()})) {
    sizes[static_cast<std::size_t>(share.shard)] += share.whole.size;
  }
  return sizes;
}

at::Tensor positions_along(const Payload& self, std::int64_t dim) {
  const DimCut& cut = dim_cut_along(self.spec(), static_cast<std::size_t>(dim));
  std::vector<at::Tensor> runs;
  for (const Interval& run : cut.intervals(*self.coordinate())) {
    runs.push_back(at::arange(run.begin, run.begin + run.size,
                              at::TensorOptions(at::kLong).device(self.device())));
  }
  return runs.size() == 1 ? runs.front() : at::cat(runs);
}

at::Tensor without(const Dims& dims, const at::Tensor& tensor) {
  return tensor.squeeze(listed(dims));
}

}  // namespace tegula::inner::families
