// Lookups of which a mask says which count: by definition a lookup of places that exist, and a
// mask.
#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/call_tensors.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

using Indices = c10::List<std::optional<at::Tensor>>;

Indices within(const Indices& indices, at::IntArrayRef sizes) {
  Indices clamped;
  for (std::size_t dim = 0; dim < indices.size(); ++dim) {
    const std::optional<at::Tensor> index = indices.get(dim);
    clamped.push_back(index ? std::optional(at::clamp(*index, -sizes[dim], sizes[dim] - 1))
                            : std::nullopt);
  }
  return clamped;
}

bool is_ours(const Call& call) {
  const Arguments a = call.arguments();
  if (!is_any_spread(call) || tensor_at(a, 0).numel() == 0) return false;
  for (const TensorPlace& place : call.tensors()) {
    if (place.argument != 2) continue;
    if (place.tensor.scalar_type() != at::kLong && place.tensor.scalar_type() != at::kInt) {
      return false;
    }
  }
  return true;
}

// A number that owes the sums that a tensor owes: on one of the ranks that add up.
at::Tensor number_beside(const at::Tensor& tensor, const at::Scalar& number) {
  const Payload* payload = payload_in(tensor);
  const at::Tensor plain = at::scalar_tensor(number, at::TensorOptions(tensor.scalar_type()));
  if (!payload || payload->link() || !payload->coordinate()) return plain;
  bool is_here = true;
  Placements placements = payload->spec().placements();
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (owed_reduction(placements[axis]) != ReduceOp::Sum) {
      placements[axis] = Replicate();
    } else {
      is_here = is_here && (*payload->coordinate())[axis] == 0;
    }
  }
  const DTensorSpec spec(payload->spec().mesh(), placements, meta_of(plain));
  return outer_tensor(is_here ? plain : at::zeros_like(plain), spec, payload->world());
}

// (self, mask, indices, fill)
Recipe make_lookup(const Call& call) {
  if (!is_ours(call)) return nullptr;
  return [](Arguments a) -> Values {
    const at::Tensor& self = tensor_at(a, 0);
    const at::Tensor found =
        at::_unsafe_index(self, within(a[2].toOptionalTensorList(), self.sizes()));
    return {at::where(tensor_at(a, 1), found, number_beside(found, a[3].toScalar()))};
  };
}

// (self, mask, indices, values)
Recipe make_add(const Call& call) {
  if (!is_ours(call)) return nullptr;
  return [](Arguments a) -> Values {
    const at::Tensor& self = tensor_at(a, 0);
    const at::Tensor values = tensor_at(a, 3).masked_fill(at::logical_not(tensor_at(a, 1)), 0);
    const Indices indices = within(a[2].toOptionalTensorList(), self.sizes());
    return {at::_unsafe_index_put(self, indices, values, true)};
  };
}

}  // namespace

const RecipeTable& masked_lookup_recipes() {
  static const RecipeTable table = {
      {"_unsafe_masked_index", make_lookup},
      {"_unsafe_masked_index_put_accumulate", make_add},
  };
  return table;
}

}  // namespace tegula::inner::families
