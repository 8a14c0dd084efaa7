// Joins along a cut dim: each rank fetches the parts of the operands that its run of the result is
// made of.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tegula/families/families.h"
#include "tegula/families/fetch_plan.h"

namespace tegula::inner::families {
namespace {

// The part of a run of the result that comes from an operand which begins there.
Interval part_of(const Interval& run, std::int64_t begin, std::int64_t size) {
  const std::int64_t first = std::clamp<std::int64_t>(run.begin - begin, 0, size);
  const std::int64_t last = std::clamp<std::int64_t>(run.end() - begin, first, size);
  return {first, last - first};
}

// The operand whose cut the others follow: the largest that is cut along the dim.
const Payload* leading_operand(const Call& call, std::int64_t dim) {
  const Payload* leading = nullptr;
  for (const TensorPlace& place : call.tensors()) {
    const Payload* payload = place.payload ? cut_payload(place.tensor) : nullptr;
    if (!payload || !is_cut_in(payload->spec(), dim)) continue;
    const bool is_larger =
        !leading || payload->spec().meta().numel() > leading->spec().meta().numel();
    if (is_larger) leading = payload;
  }
  return leading;
}

// Whether two tensors are cut by the same axes, and all dims but one in the same way.
bool differ_in_one_cut(const DTensorSpec& a, const DTensorSpec& b, std::int64_t dim) {
  if (a.is_partial() || !(a.mesh() == b.mesh()) || a.shard_order() != b.shard_order()) return false;
  for (std::size_t k = 0; k < a.shape().size(); ++k) {
    const bool is_dim = static_cast<std::int64_t>(k) == dim;
    if (!is_dim && !(a.dim_cuts()[k] == b.dim_cuts()[k])) return false;
  }
  return true;
}

// An operand's spec: its own where only the joined dim is cut otherwise, else that of the leading
// operand.
DTensorSpec operand_spec(const TensorPlace& place, const DTensorSpec& leading, std::int64_t dim) {
  const Dims all(leading.shape().size(), true);
  const bool has_tile = place.payload && !place.payload->link();
  if (has_tile && differ_in_one_cut(place.payload->spec(), leading, dim)) {
    return cut_along_only(place.payload->spec(), all);
  }
  return cut_alike(leading, TensorMeta(place.tensor.sizes().vec(), leading.meta().dtype()), all);
}

struct Join {
  DTensorSpec to;
  World world;
  std::vector<FetchPlan> operands;
};

// libtorch joins an empty vector to tensors of any dims, and leaves it out.
bool is_empty_vector(const at::Tensor& tensor) { return tensor.dim() == 1 && tensor.numel() == 0; }

bool has_empty_vectors_beside_others(const std::vector<TensorPlace>& tensors) {
  const auto is_empty = [](const TensorPlace& place) { return is_empty_vector(place.tensor); };
  const auto is_other = [&](const TensorPlace& place) { return place.tensor.dim() > 1; };
  const auto is_of_type = [&](const TensorPlace& place) {
    return place.tensor.scalar_type() == tensors.front().tensor.scalar_type();
  };
  return std::any_of(tensors.begin(), tensors.end(), is_empty) &&
         std::any_of(tensors.begin(), tensors.end(), is_other) &&
         std::all_of(tensors.begin(), tensors.end(), is_of_type);
}

Values cat_without_empty_vectors(Arguments a) {
  std::vector<at::Tensor> others;
  for (const c10::IValue& tensor : a[0].toListRef()) {
    if (!is_empty_vector(tensor.toTensor())) others.push_back(tensor.toTensor());
  }
  return {at::cat(others, a[1].toInt())};
}

Recipe make_cat(const Call& call) {
  const std::vector<TensorPlace>& tensors = call.tensors();
  if (has_empty_vectors_beside_others(tensors)) return cat_without_empty_vectors;
  const std::int64_t ndim = tensors.empty() ? 0 : tensors.front().tensor.dim();
  std::int64_t dim = call.arguments()[1].toInt();
  if (ndim == 0 || dim < -ndim || dim >= ndim) return nullptr;
  if (dim < 0) dim += ndim;
  Shape shape = tensors.front().tensor.sizes().vec();
  std::int64_t& joined = shape[static_cast<std::size_t>(dim)];
  joined = 0;
  for (const TensorPlace& place : tensors) {
    const at::Tensor& tensor = place.tensor;
    if (tensor.dim() != ndim || tensor.scalar_type() != tensors.front().tensor.scalar_type()) {
      return nullptr;
    }
    if (place.payload && !(place.payload->spec().mesh() == call.mesh())) return nullptr;
    for (std::int64_t k = 0; k < ndim; ++k) {
      if (k != dim && tensor.size(k) != shape[static_cast<std::size_t>(k)]) return nullptr;
    }
    joined += tensor.size(dim);
  }
  const Payload* leading = leading_operand(call, dim);
  if (!leading) return nullptr;
  const DTensorSpec spec =
      cut_along_only(leading->spec(), std::vector<bool>(static_cast<std::size_t>(ndim), true));
  Dims moved(shape.size(), false);
  moved[static_cast<std::size_t>(dim)] = true;
  const auto joins = std::make_shared<Join>(
      Join{cut_alike(spec, TensorMeta(shape, spec.meta().dtype()), moved), call.world(), {}});
  std::int64_t begin = 0;
  for (const TensorPlace& place : tensors) {
    const std::int64_t size = place.tensor.size(dim);
    FetchPlan plan{operand_spec(place, spec, dim), joins->to, call.world(),
                   call.coordinate().has_value()};
    plan.add(dim, [begin, size](const Interval& run) {
      return std::vector<Interval>{part_of(run, begin, size)};
    });
    joins->operands.push_back(std::move(plan));
    begin += size;
  }
  return [joins, dim](Arguments a) -> Values {
    std::vector<at::Tensor> parts;
    const bool is_inside = joins->operands.front().is_inside;
    for (std::size_t k = 0; k < joins->operands.size() && is_inside; ++k) {
      const FetchPlan& plan = joins->operands[k];
      const at::Tensor tile = tile_at(a[0].toListRef()[k].toTensor(), plan.from, plan.world);
      parts.push_back(plan.fetch(tile, 0));
    }
    return {
        result_of_tile(is_inside ? at::cat(parts, dim) : at::Tensor(), joins->to, joins->world)};
  };
}

}  // namespace

void joins(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::cat", unless_strict<make_cat>},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
