// The softmax family along a cut dim: the greatest element and the sum travel.
#include <ATen/ATen.h>

#include <limits>

#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

// A new tensor, for the others to work in: memory that is touched for the first time costs more
// than the arithmetic.
at::Tensor below_greatest(const at::Tensor& self, std::int64_t dim) {
  return self - at::amax(self, {dim}, true);
}

Values softmax(Arguments a) {
  const std::int64_t dim = a[1].toInt();
  const at::Tensor& self = tensor_at(a, 0);
  at::Tensor e = below_greatest(to_add_up(self), dim).exp_();
  e.div_(with_sum_paid(at::sum(e, {dim}, true)));
  return {in_type(e, self.scalar_type())};
}

Values log_softmax(Arguments a) {
  const std::int64_t dim = a[1].toInt();
  const at::Tensor& self = tensor_at(a, 0);
  at::Tensor below = below_greatest(to_add_up(self), dim);
  below.sub_(at::log(with_sum_paid(at::sum(at::exp(below), {dim}, true))));
  return {in_type(below, self.scalar_type())};
}

// (self, dim, dtype): zeros where nothing but minus infinity is.
Values safe_softmax(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const std::int64_t dim = a[1].toInt();
  const at::Tensor is_out = self.eq(-std::numeric_limits<double>::infinity()).all(dim, true);
  return {at::softmax(self, dim, a[2].toOptional<at::ScalarType>()).masked_fill(is_out, 0)};
}

Recipe make_safe_softmax(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const std::int64_t dim = call.arguments()[1].toInt();
  const bool can_be_out = at::isFloatingType(self.scalar_type()) && self.dim() > 0;
  return can_be_out && is_cut(self, dim) && self.size(dim) > 0 ? safe_softmax : nullptr;
}

// An empty dim has no greatest element. Where halves are to be computed as floats, the rule holds.
template <Values (*run)(Arguments)>
Recipe make_along_cut_dim(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const std::int64_t dim = a[1].toInt();
  return is_cut(self, dim) && self.size(dim) > 0 && !a[2].toBool() ? run : nullptr;
}

Values softmax_backward(Arguments a) {
  const at::Tensor& grad = tensor_at(a, 0);
  const at::Tensor share = to_add_up(tensor_at(a, 1));
  const at::Tensor weighed = to_add_up(grad) * share;
  const at::Tensor sum = with_sum_paid(at::sum(weighed, {a[2].toInt()}, true));
  return {in_type(at::addcmul(weighed, share, sum, -1), grad.scalar_type())};
}

Values log_softmax_backward(Arguments a) {
  const at::Tensor& grad = tensor_at(a, 0);
  const at::Tensor whole = to_add_up(grad);
  const at::Tensor share = at::exp(to_add_up(tensor_at(a, 1)));
  const at::Tensor sum = with_sum_paid(at::sum(whole, {a[2].toInt()}, true));
  return {in_type(at::addcmul(whole, share, sum, -1), grad.scalar_type())};
}

template <Values (*run)(Arguments)>
Recipe make_backward_along_cut_dim(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& grad = tensor_at(a, 0);
  const at::Tensor& output = tensor_at(a, 1);
  const bool fits = grad.scalar_type() == output.scalar_type() && grad.sizes() == output.sizes();
  const std::int64_t dim = a[2].toInt();
  return fits && (is_cut(output, dim) || is_cut(grad, dim)) ? run : nullptr;
}

}  // namespace

const RecipeTable& softmax_recipes() {
  static const RecipeTable table = {
      {"_softmax", make_along_cut_dim<softmax>},
      {"_log_softmax", make_along_cut_dim<log_softmax>},
      {"_safe_softmax", make_safe_softmax},
      {"_softmax_backward_data", make_backward_along_cut_dim<softmax_backward>},
      {"_log_softmax_backward_data", make_backward_along_cut_dim<log_softmax_backward>},
  };
  return table;
}

}  // namespace tegula::inner::families
