// Elements compared with others: which there are, which are among given ones, which class they are
// of. Tiles stay where they are; distinct elements travel.
#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/views.h"

namespace tegula::inner::families {
namespace {

// Of a tensor placed as self is, of another type.
DTensorSpec with_type(const Payload& self, at::ScalarType type) {
  const DTensorSpec done = with_reductions_done(self.spec());
  return done.with_meta(TensorMeta(done.shape(), dtype_of(type)));
}

// Distinct elements -------------------------------------------------------------------------------

// The one axis that cuts the tensor.
std::optional<std::size_t> only_cutting_axis(const DTensorSpec& spec) {
  std::optional<std::size_t> found;
  for (std::size_t axis = 0; axis < spec.placements().size(); ++axis) {
    if (!as_shard(spec.placements()[axis])) continue;
    if (found) return std::nullopt;
    found = axis;
  }
  return found;
}

// (self, sorted, return_inverse, return_counts) -> values, inverse, counts
Values unique(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  const PayloadPtr payload = payload_of(self);
  const DeviceMesh& mesh = payload->spec().mesh();
  const World& world = payload->world();
  const bool wants_inverse = a[2].toBool(), wants_counts = a[3].toBool();
  const at::Tensor tile = payload->resolved_tile();
  const auto [mine, places, counts] = at::_unique2(tile, true, wants_inverse, wants_counts);

  const Group group = world.group(mesh, *only_cutting_axis(payload->spec()));
  const at::TensorOptions integers = tile.options().dtype(at::kLong);
  const at::Tensor found = group.all_gather(at::full({1}, mine.numel(), integers), 0);
  const auto* first = found.const_data_ptr<std::int64_t>();
  const std::vector<std::int64_t> sizes(first, first + found.numel());
  const at::Tensor candidates = group.all_gather(mine, 0, sizes);
  const auto [values, places_of_candidates, unused] = at::_unique2(candidates, true, true, false);

  at::Tensor inverse = replicated(at::empty({0}, integers), mesh, world);
  if (wants_inverse) {
    std::int64_t begin = 0;
    for (int rank = 0; rank < group.index(); ++rank) begin += sizes[static_cast<std::size_t>(rank)];
    const at::Tensor here = places_of_candidates.narrow(0, begin, mine.numel());
    inverse = result_of_tile(here.index_select(0, places.reshape({-1})).view(tile.sizes()),
                             with_type(*payload, at::kLong), world);
  }
  at::Tensor totals = at::empty({0}, integers);
  if (wants_counts) {
    totals = at::zeros({values.numel()}, integers)
                 .index_add_(0, places_of_candidates, group.all_gather(counts, 0, sizes));
  }
  return {replicated(values, mesh, world), inverse, replicated(totals, mesh, world)};
}

// Without an order libtorch may give another one.
Recipe make_unique(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  if (!has_tile(self) || !is_spread(self) || self.numel() == 0 || !a[1].toBool()) return nullptr;
  const DTensorSpec& spec = payload_in(self)->spec();
  return only_cutting_axis(with_reductions_done(spec)) ? unique : nullptr;
}

// Among given elements ----------------------------------------------------------------------------

// (elements, test_elements, assume_unique, invert)
Values is_in(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  const Payload& payload = *payload_in(self);
  const at::Tensor is_there =
      at::isin(payload.resolved_tile(), whole_of(tensor_at(a, 1)), a[2].toBool(), a[3].toBool());
  return {result_of_tile(is_there, with_type(payload, at::kBool), payload.world())};
}

Recipe make_is_in(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const bool is_leading = is_on_mesh_of(call, payload_in(self)) && has_tile(self);
  return is_leading && is_spread(self) ? is_in : nullptr;
}

// Classes -----------------------------------------------------------------------------------------

// (self, num_classes): -1: as many as there are
Values one_hot(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  const std::int64_t least = at::min(self).item<std::int64_t>();
  const std::int64_t greatest = at::max(self).item<std::int64_t>();
  const std::int64_t classes = a[1].toInt() == -1 ? greatest + 1 : a[1].toInt();
  if (least < 0 || greatest >= classes) {
    throw UsageError("one_hot is given a class that is not there")
        .fact("classes", "0 ... " + std::to_string(classes - 1))
        .fact("given", std::to_string(least) + " ... " + std::to_string(greatest))
        .hint("give more classes, or -1 for as many as there are");
  }
  const Payload& payload = *payload_in(self);
  Shape shape = payload.spec().shape();
  std::vector<std::optional<std::int64_t>> same;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) same.emplace_back(dim);
  shape.push_back(classes);
  const DTensorSpec spec = *with_dims_moved(payload.spec(), same, TensorMeta(shape, DType::I64));
  const at::Tensor tile = payload.resolved_tile();
  Shape here(tile.sizes().begin(), tile.sizes().end());
  here.push_back(classes);
  const at::Tensor hot = at::zeros(here, tile.options()).scatter_(-1, tile.unsqueeze(-1), 1);
  return {result_of_tile(hot, spec, payload.world())};
}

Recipe make_one_hot(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const bool has_classes = self.scalar_type() == at::kLong && self.numel() > 0;
  const bool is_count = a[1].toInt() == -1 || a[1].toInt() > 0;
  return has_tile(self) && has_classes && is_count ? one_hot : nullptr;
}

}  // namespace

const RecipeTable& distinct_recipes() {
  static const RecipeTable table = {
      {"_unique2", make_unique},
      {"isin.Tensor_Tensor", make_is_in},
      {"one_hot", make_one_hot},
  };
  return table;
}

}  // namespace tegula::inner::families
