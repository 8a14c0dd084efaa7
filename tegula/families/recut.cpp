#include "tegula/families/recut.h"

#include <ATen/ATen.h>

#include "tegula/families/totals.h"
#include "tegula/gradient/differentiable.h"

namespace tegula::inner::families {
namespace {

at::Tensor placed(const at::Tensor& tensor, const Placements& placements) {
  const DTensorSpec& spec = payload_in(tensor)->spec();
  const TensorMeta meta(spec.shape(), spec.meta().dtype());
  return move_to(tensor, DTensorSpec(spec.mesh(), placements, meta), CallMode::Sync, {});
}

}  // namespace

std::optional<std::size_t> only_axis_along(const at::Tensor& tensor, std::int64_t dim) {
  if (!has_tile(tensor) || dim >= tensor.dim() || !is_cut(tensor, dim)) return std::nullopt;
  const DimCut& cut = payload_in(tensor)->spec().dim_cuts()[static_cast<std::size_t>(dim)];
  if (cut.axes().size() != 1 || cut.most_intervals() > 1) return std::nullopt;
  return cut.axes()[0].axis;
}

std::optional<std::int64_t> only_cut_dim(const at::Tensor& tensor) {
  std::optional<std::int64_t> found;
  for (std::int64_t dim = 0; dim < tensor.dim() && has_tile(tensor); ++dim) {
    if (!is_cut(tensor, dim)) continue;
    if (found || !only_axis_along(tensor, dim)) return std::nullopt;
    found = dim;
  }
  return found;
}

at::Tensor cut_along(const at::Tensor& tensor, std::int64_t dim) {
  Placements placements = payload_in(tensor)->spec().placements();
  for (Placement& placement : placements) {
    if (as_shard(placement)) placement = Shard(dim);
  }
  return placed(tensor, placements);
}

at::Tensor cut_by_units(const at::Tensor& tensor, std::int64_t dim, std::int64_t unit) {
  const std::optional<std::size_t> axis = only_axis_along(tensor, dim);
  if (!axis) return tensor;
  const DTensorSpec& spec = payload_in(tensor)->spec();
  const std::int64_t ranks = spec.mesh().axes()[*axis].size;
  const std::int64_t units = tensor.size(dim) / unit;
  std::vector<std::int64_t> sizes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back(unit * (units / ranks + (rank < units % ranks ? 1 : 0)));
  }
  Placements placements = spec.placements();
  placements[*axis] = Shard(dim, Cut::ragged(sizes));
  return placed(tensor, placements);
}

}  // namespace tegula::inner::families
