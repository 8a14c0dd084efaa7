// Other reductions over a cut dim whose parts do not simply combine: each rank reduces its tile,
// and totals of the results' size travel.
#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

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
