// Reductions over a cut dim whose parts do not simply combine: each rank reduces its tile, and
// totals of the results' size travel.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/families/lists.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_floating(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

std::optional<at::ScalarType> type_at(const c10::IValue& value) {
  if (value.isNone()) return std::nullopt;
  return value.toScalarType();
}

template <class T>
at::Scalar limit_of(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  return static_cast<std::int64_t>(op == ReduceOp::Max ? Limits::lowest() : Limits::max());
}

bool has_order(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return at::isFloatingType(type) || type == at::kBool || type == at::kByte || type == at::kChar ||
         type == at::kShort || type == at::kInt || type == at::kLong;
}

// Of a type with an order: its least element for Max, its greatest for Min. This is what a rank
// without elements gives.
at::Scalar neutral_of(ReduceOp op, at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return op == ReduceOp::Min;
    case at::kByte:
      return limit_of<std::uint8_t>(op);
    case at::kChar:
      return limit_of<std::int8_t>(op);
    case at::kShort:
      return limit_of<std::int16_t>(op);
    case at::kInt:
      return limit_of<std::int32_t>(op);
    case at::kLong:
      return limit_of<std::int64_t>(op);
    default:
      return op == ReduceOp::Max ? -kInfinity : kInfinity;
  }
}

// The tile of a tensor that owes nothing, reduced over some dims; `empty` if it has none.
at::Tensor reduced_tile(const Payload& self, const Dims& dims, const at::Scalar& empty,
                        at::ScalarType type,
                        const std::function<at::Tensor(const at::Tensor&)>& reduce) {
  const at::Tensor tile = self.resolved_tile();
  if (count_of(tile, dims) > 0) return reduce(tile);
  std::vector<std::int64_t> shape = tile.sizes().vec();
  for (const std::int64_t dim : listed(dims)) shape[static_cast<std::size_t>(dim)] = 1;
  return at::full(shape, empty, tile.options().dtype(type));
}

// Greatest and least ------------------------------------------------------------------------------

// Where some rank has no elements: the rule covers the rest.
at::Tensor extreme(const at::Tensor& tensor, const Dims& dims, ReduceOp op) {
  const at::Tensor self = with_sum_paid(tensor);
  const PayloadPtr payload = payload_of(self);
  const at::ScalarType type = self.scalar_type();
  const at::Tensor part =
      reduced_tile(*payload, dims, neutral_of(op, type), type, [&](const at::Tensor& tile) {
        return op == ReduceOp::Max ? at::amax(tile, listed(dims), true)
                                   : at::amin(tile, listed(dims), true);
      });
  return owed_part(part, *payload, dims, op);
}

template <ReduceOp op>
Values extreme_over(Arguments a) {
  const Dims dims = dims_of(tensor_at(a, 0), a[1]);
  const at::Tensor result = extreme(tensor_at(a, 0), dims, op);
  return {a[2].toBool() ? result : without(dims, result)};
}

template <ReduceOp op>
Values extreme_of_all(Arguments a) {
  const Dims all = dims_of(tensor_at(a, 0), c10::IValue());
  return {without(all, extreme(tensor_at(a, 0), all, op))};
}

bool leaves_ranks_empty(const at::Tensor& self, const Dims& dims) {
  return has_tile(self) && has_order(self) && count_of(self, dims) > 0 &&
         has_empty_shard(self, dims);
}

template <ReduceOp op>
Recipe make_extreme_over(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return leaves_ranks_empty(self, dims_of(self, call.arguments()[1])) ? extreme_over<op> : nullptr;
}

template <ReduceOp op>
Recipe make_extreme_of_all(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return leaves_ranks_empty(self, dims_of(self, c10::IValue())) ? extreme_of_all<op> : nullptr;
}

Values both_extremes(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const std::vector<std::int64_t> dims = listed(dims_of(self, a[1]));
  return {at::amin(self, dims, a[2].toBool()), at::amax(self, dims, a[2].toBool())};
}

Recipe make_both_extremes(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return is_spread(self) && self.numel() > 0 ? both_extremes : nullptr;
}

// Where the greatest is ---------------------------------------------------------------------------

// The extreme element of each shard, and its place in the whole: of several the first.
struct Found {
  at::Tensor values;
  at::Tensor places;
};

// Places where there is none.
constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::max();

Found found_in_tile(const Payload& self, std::int64_t dim, ReduceOp op) {
  const at::Tensor tile = self.resolved_tile();
  if (tile.size(dim) > 0) {
    auto [values, places] =
        op == ReduceOp::Max ? at::max(tile, dim, true) : at::min(tile, dim, true);
    return {values, at::take(positions_along(self, dim), places)};
  }
  std::vector<std::int64_t> shape = tile.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = 1;
  return {at::full(shape, neutral_of(op, tile.scalar_type()), tile.options()),
          at::full(shape, kNowhere, tile.options().dtype(at::kLong))};
}

// The first one in the order of the whole's elements.
Found found_in_all_of_tile(const Payload& self, ReduceOp op) {
  const at::Tensor tile = self.resolved_tile();
  const std::vector<std::int64_t> one(static_cast<std::size_t>(tile.dim()), 1);
  const at::TensorOptions integers = tile.options().dtype(at::kLong);
  if (tile.numel() == 0) {
    return {at::full(one, neutral_of(op, tile.scalar_type()), tile.options()),
            at::full(one, kNowhere, integers)};
  }
  at::Tensor rest = op == ReduceOp::Max ? at::argmax(tile) : at::argmin(tile);
  const at::Tensor value = at::take(tile, rest);
  at::Tensor place = at::zeros({}, integers);
  std::int64_t stride = 1;
  for (std::int64_t dim = tile.dim(); dim-- > 0;) {
    const at::Tensor along = at::remainder(rest, tile.size(dim));
    place = place + at::take(positions_along(self, dim), along) * stride;
    rest = at::floor_divide(rest, tile.size(dim));
    stride *= self.spec().shape()[static_cast<std::size_t>(dim)];
  }
  return {value.view(one), place.view(one)};
}

// Of all shards, with dims of one element. NaN counts as more than anything; the place is a minimum
// that is still owed.
Found found_in_whole(const Found& here, const Payload& self, const Dims& dims, ReduceOp op) {
  const std::vector<std::int64_t> along = listed(dims);
  const at::Tensor values = part_per_shard(here.values, self, dims);
  const at::Tensor places = part_per_shard(here.places, self, dims);
  const at::Tensor best = with_sum_paid(op == ReduceOp::Max ? at::amax(values, along, true)
                                                            : at::amin(values, along, true));
  const at::Tensor is_best = at::logical_or(at::eq(values, best), at::ne(values, values));
  const at::Tensor candidates = places.masked_fill(is_best.logical_not(), kNowhere);
  return {best, at::amin(candidates, along, true)};
}

Found find_along(const at::Tensor& tensor, std::int64_t dim, ReduceOp op) {
  const at::Tensor self = with_sum_paid(tensor);
  const PayloadPtr payload = payload_of(self);
  const auto wrapped = dim < 0 ? dim + self.dim() : dim;
  return found_in_whole(found_in_tile(*payload, wrapped, op), *payload, one_dim(self, dim), op);
}

template <ReduceOp op>
Values extreme_and_place(Arguments a) {
  const Found found = find_along(tensor_at(a, 0), a[1].toInt(), op);
  if (a[2].toBool()) return {found.values, found.places};
  const Dims dims = one_dim(tensor_at(a, 0), a[1].toInt());
  return {without(dims, found.values), without(dims, found.places)};
}

template <ReduceOp op>
Values place_of_extreme(Arguments a) {
  const Dims dims = dims_of(tensor_at(a, 0), a[1]);
  at::Tensor places;
  if (a[1].isNone()) {
    const at::Tensor self = with_sum_paid(tensor_at(a, 0));
    const PayloadPtr payload = payload_of(self);
    places = found_in_whole(found_in_all_of_tile(*payload, op), *payload, dims, op).places;
  } else {
    places = find_along(tensor_at(a, 0), a[1].toInt(), op).places;
  }
  return {a[2].toBool() ? places : without(dims, places)};
}

// (self, dim or none, keepdim)
template <Values (*run)(Arguments)>
Recipe make_search(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const Dims dims = dims_of(self, call.arguments()[1]);
  const bool can_search = has_tile(self) && has_order(self) && count_of(self, dims) > 0;
  return can_search && is_cut(self, dims) ? run : nullptr;
}

// libtorch finds no places of bools.
template <ReduceOp op>
Recipe make_place(const Call& call) {
  const bool is_bool = tensor_at(call.arguments(), 0).scalar_type() == at::kBool;
  return is_bool ? nullptr : make_search<place_of_extreme<op>>(call);
}

// Norms -------------------------------------------------------------------------------------------

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
  return have_parts && !are_whole ? norms_of_list : one_mesh_at_a_time(call);
}

// Variance ----------------------------------------------------------------------------------------

// The squares of what differs from the mean of all: exact where the mean is large. Two reductions.
struct Moments {
  at::Tensor mean;      // dims of one element
  at::Tensor variance;  // owes a sum
};

// (self, dims, correction, keepdim)
Moments moments_of(Arguments a) {
  const at::Tensor self = to_add_up(with_sum_paid(tensor_at(a, 0)));
  const Dims dims = dims_of(self, a[1]);
  const double correction = a[2].isNone() ? 1 : a[2].toScalar().toDouble();
  const at::Tensor mean = with_sum_paid(at::mean(self, listed(dims), true));
  const at::Tensor off = self - mean;
  const at::Tensor squares =
      off.is_complex() ? at::square(at::real(off)) + at::square(at::imag(off)) : at::square(off);
  const double count = static_cast<double>(count_of(self, dims));
  const at::Tensor sum = at::sum(squares, listed(dims), a[3].toBool());
  return {a[3].toBool() ? mean : without(dims, mean), sum / std::max(0.0, count - correction)};
}

at::ScalarType real_type_of(Arguments a) {
  return c10::toRealValueType(tensor_at(a, 0).scalar_type());
}

Values variance(Arguments a) { return {rounded_to(moments_of(a).variance, real_type_of(a))}; }

Values deviation(Arguments a) {
  return {rounded_to(moments_of(a).variance.sqrt(), real_type_of(a))};
}

Values variance_and_mean(Arguments a) {
  const Moments moments = moments_of(a);
  return {rounded_to(moments.variance, real_type_of(a)),
          in_type(moments.mean, tensor_at(a, 0).scalar_type())};
}

Values deviation_and_mean(Arguments a) {
  const Moments moments = moments_of(a);
  return {rounded_to(moments.variance.sqrt(), real_type_of(a)),
          in_type(moments.mean, tensor_at(a, 0).scalar_type())};
}

// (self, dims, ...), of floating types
template <Values (*run)(Arguments)>
Recipe make_over_cut_dims(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const Dims dims = dims_of(self, call.arguments()[1]);
  return is_floating(self) && count_of(self, dims) > 0 && is_cut(self, dims) ? run : nullptr;
}

Values logsumexp(Arguments a) {
  const at::Tensor self = to_add_up(with_sum_paid(tensor_at(a, 0)));
  const Dims dims = dims_of(self, a[1]);
  const at::Tensor greatest = at::amax(self, listed(dims), true);
  const at::Tensor base = greatest.masked_fill(at::isinf(greatest), 0);
  const at::Tensor sum = at::sum(at::exp(self - base), listed(dims), true).log() + base;
  const at::Tensor result = in_type(sum, tensor_at(a, 0).scalar_type());
  return {a[2].toBool() ? result : without(dims, result)};
}

Recipe make_logsumexp(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return self.is_complex() ? nullptr : make_over_cut_dims<logsumexp>(call);
}

// Comparing, counting -----------------------------------------------------------------------------

Values equal(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  if (self.sizes() != tensor_at(a, 1).sizes()) return {false};
  return {at::all(at::eq(self, tensor_at(a, 1))).item<bool>()};
}

Recipe make_equal(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const at::Tensor& other = tensor_at(call.arguments(), 1);
  const bool is_there = is_spread(self) || is_spread(other);
  return is_there && self.scalar_type() == other.scalar_type() ? equal : nullptr;
}

// (self, other, rtol, atol, equal_nan)
Values all_close(Arguments a) {
  const at::Tensor close = at::isclose(tensor_at(a, 0), tensor_at(a, 1), a[2].toDouble(),
                                       a[3].toDouble(), a[4].toBool());
  return {at::all(close).item<bool>()};
}

Recipe make_all_close(const Call& call) {
  const Arguments a = call.arguments();
  return is_spread(tensor_at(a, 0)) || is_spread(tensor_at(a, 1)) ? all_close : nullptr;
}

// Each rank adds up what it has of the diagonal.
Values trace(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  const PayloadPtr payload = payload_of(self);
  const Coordinate at = *payload->coordinate();
  const std::int64_t row = payload->spec().dim_cuts()[0].intervals(at).front().begin;
  const std::int64_t column = payload->spec().dim_cuts()[1].intervals(at).front().begin;
  const at::ScalarType type = self.scalar_type();
  const std::optional<at::ScalarType> as_float =
      at::isFloatingType(type) ? std::optional(sum_type(type)) : std::nullopt;
  const at::Tensor part = at::diagonal(payload->resolved_tile(), row - column).sum(as_float);
  const Dims both(2, true);
  const at::Tensor total =
      without(both, owed_part(part.view({1, 1}), *payload, both, ReduceOp::Sum));
  return {as_float ? rounded_to(total, type) : total};
}

Recipe make_trace(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const bool has_sum = self.dim() == 2 && self.scalar_type() != at::kBool;
  if (!has_tile(self) || !has_sum || !is_spread(self)) return nullptr;
  for (const DimCut& cut : payload_of(self)->spec().dim_cuts()) {
    if (cut.most_intervals() != 1) return nullptr;
  }
  return trace;
}

// A histogram of each tile, with the bins of the whole.
Values histogram(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  double least = a[2].toScalar().toDouble();
  double greatest = a[3].toScalar().toDouble();
  if (least == greatest) {
    least = at::min(self).item<double>();
    greatest = at::max(self).item<double>();
  }
  if (least == greatest) {
    least -= 1;
    greatest += 1;
  }
  const PayloadPtr payload = payload_of(self);
  const at::Tensor flat = payload->resolved_tile().reshape({-1});
  const at::Tensor counts = at::histc(flat, a[1].toInt(), least, greatest);
  Placements placements = payload->spec().placements();
  for (Placement& placement : placements) {
    if (as_shard(placement)) placement = Partial(ReduceOp::Sum);
  }
  const DTensorSpec spec(payload->spec().mesh(), placements, meta_of(counts));
  return {outer_tensor(counts, spec, payload->world())};
}

Recipe make_histogram(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const bool can_count = has_tile(self) && at::isFloatingType(self.scalar_type());
  return can_count && is_spread(self) && self.numel() > 0 ? histogram : nullptr;
}

// (self, weights, minlength): as many counts as the greatest of all needs.
Values bincount(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  if (at::min(self).item<std::int64_t>() < 0) {
    throw UsageError("bincount counts integers that are not negative")
        .fact("least", std::to_string(at::min(self).item<std::int64_t>()))
        .hint("shift them, or call unique");
  }
  const std::int64_t bins = std::max(a[2].toInt(), at::max(self).item<std::int64_t>() + 1);
  const PayloadPtr payload = payload_of(self);
  std::optional<at::Tensor> weights;
  if (is_given(a[1])) {
    const at::Tensor placed =
        move_to(tensor_at(a, 1),
                payload->spec().with_meta(
                    TensorMeta(payload->spec().shape(), dtype_of(tensor_at(a, 1).scalar_type()))),
                CallMode::Sync, {});
    weights = payload_of(placed)->resolved_tile();
  }
  const at::Tensor counts = at::bincount(payload->resolved_tile(), weights, bins);
  Placements placements = payload->spec().placements();
  for (Placement& placement : placements) {
    if (as_shard(placement)) placement = Partial(ReduceOp::Sum);
  }
  const DTensorSpec spec(payload->spec().mesh(), placements, meta_of(counts));
  return {outer_tensor(counts, spec, payload->world())};
}

Recipe make_bincount(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const bool can_count = has_tile(self) && self.dim() == 1 && self.numel() > 0 &&
                         at::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  if (!can_count || !is_spread(self) || a[2].toInt() < 0) return nullptr;
  if (is_given(a[1])) {
    const Payload* weights = payload_in(tensor_at(a, 1));
    const bool fits = weights && !weights->link() && tensor_at(a, 1).sizes() == self.sizes() &&
                      weights->spec().mesh() == payload_in(self)->spec().mesh();
    if (!fits) return nullptr;
  }
  return bincount;
}

}  // namespace

const RecipeTable& reduction_recipes() {
  static const RecipeTable table = {
      {"amax", make_extreme_over<ReduceOp::Max>},
      {"amin", make_extreme_over<ReduceOp::Min>},
      {"max", make_extreme_of_all<ReduceOp::Max>},
      {"min", make_extreme_of_all<ReduceOp::Min>},
      {"aminmax", make_both_extremes},
      {"max.dim", make_search<extreme_and_place<ReduceOp::Max>>},
      {"min.dim", make_search<extreme_and_place<ReduceOp::Min>>},
      {"argmax", make_place<ReduceOp::Max>},
      {"argmin", make_place<ReduceOp::Min>},
      {"linalg_vector_norm", make_norm<5>},
      {"norm.Scalar", make_norm<2>},
      {"norm.ScalarOpt_dtype", make_norm_of_all},
      {"norm.ScalarOpt_dim", make_norm<4>},
      {"norm.ScalarOpt_dim_dtype", make_norm<5>},
      {"_foreach_norm.Scalar", make_norms_of_list},
      {"dist", make_distance},
      {"renorm", make_renorm},
      {"var.correction", make_over_cut_dims<variance>},
      {"std.correction", make_over_cut_dims<deviation>},
      {"var_mean.correction", make_over_cut_dims<variance_and_mean>},
      {"std_mean.correction", make_over_cut_dims<deviation_and_mean>},
      {"logsumexp", make_logsumexp},
      {"equal", make_equal},
      {"allclose", make_all_close},
      {"trace", make_trace},
      {"histc", make_histogram},
      {"bincount", make_bincount},
  };
  return table;
}

}  // namespace tegula::inner::families
