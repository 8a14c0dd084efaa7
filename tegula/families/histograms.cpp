// Histograms over several dims at once, of points [..., n, d] that are cut: each rank counts its
// points in the bins of the whole, and the counts are owed. Bins depend on the least and the
// greatest point alone, which are found together.
#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/call_tensors.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/local_call.h"

namespace tegula::inner::families {
namespace {

constexpr std::size_t kSelf = 0, kBins = 1;

// Coordinates of one point stay together.
at::Tensor with_whole_points(const at::Tensor& points) {
  const at::Tensor paid = with_sum_paid(points);
  return is_cut(paid, -1) ? cut_along(paid, 0) : paid;
}

bool can_count(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), kSelf);
  return has_tiles(call) && is_any_spread(call) && !StrictMode::is_on() && self.dim() >= 2 &&
         self.numel() > 0 && payload_in(self) != nullptr;
}

// The points' least coordinates and their greatest, plain: [2, d].
at::Tensor extremes(const at::Tensor& points) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(points.dim() - 1));
  for (std::size_t k = 0; k < dims.size(); ++k) dims[k] = static_cast<std::int64_t>(k);
  return at::stack({whole_of(at::amin(points, dims)), whole_of(at::amax(points, dims))});
}

// [least, greatest] per coordinate
std::vector<double> ranges_of(const at::Tensor& extremes) {
  const at::Tensor pairs = extremes.t().to(at::kDouble).contiguous().view({-1});
  return {pairs.const_data_ptr<double>(), pairs.const_data_ptr<double>() + pairs.numel()};
}

// Of what is counted tile by tile: the axes that cut the points owe the sum.
at::Tensor owed_counts(const at::Tensor& counts, const DTensorSpec& points, const World& world) {
  Placements placements = points.placements();
  for (Placement& placement : placements) {
    if (as_shard(placement)) placement = Partial(ReduceOp::Sum);
  }
  return result_of_tile(counts, {points.mesh(), placements, dense(meta_of(counts))}, world);
}

// As libtorch makes densities of counts.
at::Tensor densities(const at::Tensor& counts, const std::vector<at::Tensor>& edges) {
  at::Tensor result = counts / with_sum_paid(counts.sum());
  for (std::size_t dim = 0; dim < edges.size(); ++dim) {
    std::vector<std::int64_t> along(edges.size(), 1);
    along[dim] = counts.size(static_cast<std::int64_t>(dim));
    result = result / replicated(edges[dim].diff().reshape(along),
                                 payload_in(counts)->spec().mesh(), payload_in(counts)->world());
  }
  return result;
}

// The points that a rank has, and what they weigh.
struct PointsHere {
  DTensorSpec spec;
  at::Tensor points;
  c10::IValue weight;
};

PointsHere points_here(const at::Tensor& self, const c10::IValue& weight, const World& world) {
  const at::Tensor whole_points = [&] {
    if (is_spread(self) || !is_given(weight) || !is_spread(weight.toTensor())) {
      return with_whole_points(self);
    }
    return self;
  }();
  DTensorSpec spec = payload_in(whole_points)->spec();
  if (!spec.is_sharded() && is_given(weight) && is_spread(weight.toTensor())) {
    const DTensorSpec& of_weight = payload_in(with_sum_paid(weight.toTensor()))->spec();
    spec = {of_weight.mesh(), of_weight.placements(), of_weight.shard_order(),
            dense(meta_of(self))};
  }
  spec = spec.with_meta(dense(spec.meta()));
  PointsHere here{spec, tile_at(whole_points, spec, world).contiguous(), weight};
  if (is_given(weight)) {
    const DTensorSpec of_weight(spec.mesh(), spec.placements(), spec.shard_order(),
                                dense(meta_of(weight.toTensor())));
    here.weight = tile_at(weight.toTensor(), of_weight, world).contiguous();
  }
  return here;
}

// (self, bins, range?, weight?, density) -> edges, plain
std::vector<at::Tensor> edges_of(Arguments a) {
  if (a[kBins].isTensorList()) {
    std::vector<at::Tensor> edges;
    for (const at::Tensor& one : a[kBins].toTensorVector()) edges.push_back(whole_of(one));
    return edges;
  }
  c10::optional<at::ArrayRef<double>> range;
  std::vector<double> given;
  if (!a[2].isNone()) {
    given = a[2].toDoubleVector();
    range = given;
  }
  const at::Tensor& self = tensor_at(a, kSelf);
  const at::Tensor rows = range ? at::zeros({2, self.size(-1)}, payload_in(self)->tile().options())
                                : extremes(with_whole_points(self));
  return at::_histogramdd_bin_edges(rows, a[kBins].toIntVector(), range, {}, false);
}

Values edges_on_mesh(Arguments a) {
  const Payload& self = *payload_in(tensor_at(a, kSelf));
  c10::List<at::Tensor> edges;
  for (const at::Tensor& one : edges_of(a)) {
    edges.push_back(replicated(one, self.spec().mesh(), self.world()));
  }
  return {edges};
}

Recipe make_edges(const Call& call) { return can_count(call) ? edges_on_mesh : nullptr; }

// (self, numbers of bins, range?, weight?, density) -> counts
Recipe make_counts(const Call& call) {
  if (!can_count(call)) return nullptr;
  return [world = call.world()](Arguments a) -> Values {
    const at::Tensor& self = tensor_at(a, kSelf);
    const std::vector<double> range =
        a[2].isNone() ? ranges_of(extremes(with_whole_points(self))) : a[2].toDoubleVector();
    const PointsHere here = points_here(self, a[3], world);
    const at::Tensor counts = at::_histogramdd_from_bin_cts(
        here.points, a[kBins].toIntVector(), range, here.weight.toOptional<at::Tensor>(), false);
    const at::Tensor owed = owed_counts(counts, here.spec, world);
    return {a[4].toBool() ? densities(owed, edges_of(a)) : owed};
  };
}

// (self, bins' edges, weight?, density) -> counts
Recipe make_counts_between(const Call& call) {
  if (!can_count(call)) return nullptr;
  return [world = call.world()](Arguments a) -> Values {
    const std::vector<at::Tensor> edges = edges_of(a);
    const PointsHere here = points_here(tensor_at(a, kSelf), a[2], world);
    const at::Tensor counts = at::_histogramdd_from_bin_tensors(
        here.points, edges, here.weight.toOptional<at::Tensor>(), false);
    const at::Tensor owed = owed_counts(counts, here.spec, world);
    return {a[3].toBool() ? densities(owed, edges) : owed};
  };
}

}  // namespace

const RecipeTable& histogram_recipes() {
  static const RecipeTable table = {
      {"_histogramdd_bin_edges", make_edges},
      {"_histogramdd_from_bin_cts", make_counts},
      {"_histogramdd_from_bin_tensors", make_counts_between},
  };
  return table;
}

}  // namespace tegula::inner::families
