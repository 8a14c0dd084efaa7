// Norms over a cut dim: each rank adds up the powers in its tile, and the sums travel.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/lists.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::optional<at::ScalarType> type_at(const c10::IValue& value) {
  if (value.isNone()) return std::nullopt;
  return value.toScalarType();
}

// A norm's parts: of order p the sum of |x|^p, of which the root is taken when all are added.
struct NormPart {
  at::Tensor part;
  ReduceOp over = ReduceOp::Sum;
};

NormPart norm_part(const Payload& self, double order, const Dims& dims, at::ScalarType type) {
  const auto norm = [&](const at::Tensor& tile) {
    return at::linalg_vector_norm(tile, order, listed(dims), true, type);
  };
  const at::ScalarType real = c10::toRealValueType(type);
  if (order == kInfinity) return {reduced_tile(self, dims, 0, real, norm), ReduceOp::Max};
  if (order == -kInfinity) return {reduced_tile(self, dims, kInfinity, real, norm), ReduceOp::Min};
  const at::Tensor part = reduced_tile(self, dims, 0, real, [&](const at::Tensor& tile) {
    return order == 0 || order == 1 ? norm(tile) : norm(tile).pow(order);
  });
  return {part, ReduceOp::Sum};
}

at::Tensor root_of(const at::Tensor& total, double order) {
  if (order == 2) return total.sqrt();
  if (std::isinf(order) || order == 0 || order == 1) return total;
  return total.pow(1 / order);
}

at::Tensor norm_over(const at::Tensor& tensor, double order, const Dims& dims,
                     std::optional<at::ScalarType> given) {
  const at::Tensor self = with_sum_paid(tensor);
  const PayloadPtr payload = payload_of(self);
  const at::ScalarType type = given.value_or(self.scalar_type());
  const NormPart part = norm_part(*payload, order, dims, sum_type(type));
  const at::Tensor total = with_sum_paid(owed_part(part.part, *payload, dims, part.over));
  return in_type(root_of(total, order), c10::toRealValueType(type));
}

double order_at(const c10::IValue& value) {
  return value.isNone() ? 2 : value.toScalar().toDouble();
}

bool has_cut_norm(const at::Tensor& self, const Dims& dims) {
  return has_tile(self) && is_floating(self) && count_of(self, dims) > 0 && is_cut(self, dims);
}

// (self, order, dims, keepdim, dtype), as many of them as the op has
template <std::size_t count>
Values norm(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const Dims dims = dims_of(self, count > 2 ? a[2] : c10::IValue());
  const std::optional<at::ScalarType> type =
      count > 4 ? type_at(a[4]) : std::optional<at::ScalarType>();
  const at::Tensor result = norm_over(self, order_at(a[1]), dims, type);
  return {count > 3 && a[3].toBool() ? result : without(dims, result)};
}

template <std::size_t count>
Recipe make_norm(const Call& call) {
  const Arguments a = call.arguments();
  const Dims dims = dims_of(tensor_at(a, 0), count > 2 ? a[2] : c10::IValue());
  return has_cut_norm(tensor_at(a, 0), dims) ? norm<count> : nullptr;
}

// (self, order, dtype)
Values norm_of_all(Arguments a) {
  const Dims all = dims_of(tensor_at(a, 0), c10::IValue());
  return {without(all, norm_over(tensor_at(a, 0), order_at(a[1]), all, type_at(a[2])))};
}

Recipe make_norm_of_all(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return has_cut_norm(self, dims_of(self, c10::IValue())) ? norm_of_all : nullptr;
}

// The sum of powers, without the root.
at::Tensor sum_of_powers(const at::Tensor& tensor, const at::Scalar& order, const Dims& dims,
                         std::optional<at::ScalarType> type) {
  const at::Tensor self = type ? tensor.to(*type) : tensor;
  return at::sum(at::abs(self).pow(order), listed(dims), true);
}

// (self, order, dims, keepdim, dtype)
Values powers(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const Dims dims = dims_of(self, a[2]);
  const at::Tensor sum = sum_of_powers(self, a[1].toScalar(), dims, type_at(a[4]));
  return {a[3].toBool() ? sum : without(dims, sum)};
}

Recipe make_powers(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return is_spread(self) && is_floating(self) && self.numel() > 0 ? powers : nullptr;
}

// (tensors, order, dtype)
Values powers_of_each(Arguments a) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& self : a[0].toTensorVector()) {
    const Dims all = dims_of(self, c10::IValue());
    sums.push_back(without(all, sum_of_powers(self, a[1].toScalar(), all, type_at(a[2]))));
  }
  return {sums};
}

Recipe make_powers_of_each(const Call& call) {
  const bool can_all =
      std::all_of(call.tensors().begin(), call.tensors().end(), [](const TensorPlace& place) {
        return is_floating(place.tensor) && place.tensor.numel() > 0;
      });
  return can_all ? powers_of_each : nullptr;
}

Values distance(Arguments a) {
  const at::Tensor apart = tensor_at(a, 0) - tensor_at(a, 1);
  return {at::linalg_vector_norm(apart, a[2].toScalar())};
}

Recipe make_distance(const Call& call) {
  const Arguments a = call.arguments();
  const bool is_there = is_spread(tensor_at(a, 0)) || is_spread(tensor_at(a, 1));
  return is_there && is_floating(tensor_at(a, 0)) ? distance : nullptr;
}

// (self, p, dim, maxnorm): slices along dim are scaled down to that norm.
Values renorm(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  Dims others = one_dim(self, a[2].toInt());
  others.flip();
  const at::Tensor norms = at::linalg_vector_norm(self, a[1].toScalar(), listed(others), true,
                                                  sum_type(self.scalar_type()));
  const double most = a[3].toScalar().toDouble();
  constexpr double kNotZero = 1e-7;  // as libtorch has it
  const at::Tensor scale =
      (at::reciprocal(norms + kNotZero) * most).masked_fill(norms.gt(most).logical_not(), 1);
  return {self * in_type(scale, self.scalar_type())};
}

Recipe make_renorm(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return is_spread(self) && at::isFloatingType(self.scalar_type()) && self.dim() > 1 ? renorm
                                                                                     : nullptr;
}

// Norms of all members of a list: one reduction per mesh and way to combine.
Values norms_of_list(Arguments a) {
  const std::vector<at::Tensor> members = a[0].toTensorVector();
  const double order = order_at(a[1]);
  std::vector<at::Tensor> norms(members.size());
  struct Batch {
    PayloadPtr first;
    std::vector<std::size_t> members;
    std::vector<at::Tensor> parts;
    std::vector<at::ScalarType> types;
  };
  std::vector<Batch> batches;
  for (std::size_t k = 0; k < members.size(); ++k) {
    const at::Tensor self = with_sum_paid(members[k]);
    const PayloadPtr payload = payload_of(self);
    const at::ScalarType type = type_at(a[2]).value_or(self.scalar_type());
    const Dims all = dims_of(self, c10::IValue());
    const NormPart part = norm_part(*payload, order, all, sum_type(type));
    // a replica is counted once
    at::Tensor mine = part.part.reshape({});
    const Coordinate at = *payload->coordinate();
    for (std::size_t axis = 0; axis < at.size() && part.over == ReduceOp::Sum; ++axis) {
      if (is_replicate(payload->spec().placements()[axis]) && at[axis] > 0)
        mine = at::zeros_like(mine);
    }
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& one) {
      return one.first->spec().mesh() == payload->spec().mesh() &&
             one.parts.front().scalar_type() == mine.scalar_type();
    });
    if (batch == batches.end()) batch = batches.insert(batch, Batch{payload, {}, {}, {}});
    batch->members.push_back(k);
    batch->parts.push_back(mine);
    batch->types.push_back(c10::toRealValueType(type));
  }
  const ReduceOp over = order == kInfinity    ? ReduceOp::Max
                        : order == -kInfinity ? ReduceOp::Min
                                              : ReduceOp::Sum;
  for (const Batch& batch : batches) {
    const at::Tensor parts = at::stack(batch.parts);
    const DeviceMesh& mesh = batch.first->spec().mesh();
    const TensorMeta meta = meta_of(parts);
    const at::Tensor totals =
        redistribute_tile(batch.first->world(), parts,
                          DTensorSpec(mesh, Placements(mesh.ndim(), Partial(over)), meta),
                          replicated_spec(mesh, meta));
    const at::Tensor roots = root_of(totals, order);
    for (std::size_t k = 0; k < batch.members.size(); ++k) {
      const at::Tensor norm = roots.select(0, static_cast<std::int64_t>(k)).to(batch.types[k]);
      norms[batch.members[k]] = replicated(norm.clone(), mesh, batch.first->world());
    }
  }
  return {norms};
}

// Those that have no elements by themselves, the others together.
Values norms_beside_empty(Arguments a) {
  const std::vector<at::Tensor> members = a[0].toTensorVector();
  const auto type = a[2].isNone() ? std::nullopt : std::optional(a[2].toScalarType());
  std::vector<at::Tensor> others;
  for (const at::Tensor& member : members) {
    if (member.numel() > 0) others.push_back(member);
  }
  const std::vector<at::Tensor> found = at::_foreach_norm(others, a[1].toScalar(), type);
  std::vector<at::Tensor> norms;
  auto next = found.begin();
  for (const at::Tensor& member : members) {
    norms.push_back(member.numel() > 0
                        ? *next++
                        : at::linalg_vector_norm(member, a[1].toScalar(), at::OptionalIntArrayRef(),
                                                 false, type));
  }
  return {norms};
}

// (tensors, order, dtype)
Recipe make_norms_of_list(const Call& call) {
  const auto all = [&](const auto& holds) {
    return std::all_of(call.tensors().begin(), call.tensors().end(),
                       [&](const TensorPlace& place) { return holds(place.tensor); });
  };
  const bool have_parts = all([](const at::Tensor& member) {
    return has_tile(member) && is_floating(member) && member.numel() > 0;
  });
  const bool are_whole = all([](const at::Tensor& member) { return !is_spread(member); });
  const bool are_on_mesh =
      std::all_of(call.tensors().begin(), call.tensors().end(), [&](const TensorPlace& place) {
        return place.payload && place.payload->spec().mesh() == call.mesh();
      });
  const bool are_empty = all([](const at::Tensor& member) { return member.numel() == 0; });
  const bool have_elements = all([](const at::Tensor& member) { return member.numel() > 0; });
  if (are_on_mesh && !are_whole && !have_elements && !are_empty) return norms_beside_empty;
  return have_parts && !are_whole ? norms_of_list : one_mesh_at_a_time(call);
}

}  // namespace

const RecipeTable& norm_recipes() {
  static const RecipeTable table = {
      {"linalg_vector_norm", make_norm<5>},
      {"norm.Scalar", make_norm<2>},
      {"norm.ScalarOpt_dtype", make_norm_of_all},
      {"norm.ScalarOpt_dim", make_norm<4>},
      {"norm.ScalarOpt_dim_dtype", make_norm<5>},
      {"_foreach_norm.Scalar", make_norms_of_list},
      {"linalg__powsum", make_powers},
      {"_foreach_powsum.Scalar", make_powers_of_each},
      {"dist", make_distance},
      {"renorm", make_renorm},
  };
  return table;
}

}  // namespace tegula::inner::families
