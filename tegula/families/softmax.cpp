// The softmax family along a cut dim: the greatest element and the sum travel.
#include <ATen/ATen.h>

#include <limits>

#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

enum class Form { Softmax, LogSoftmax };

// The softmax of a tile by itself, and what its exponentials add up to.
struct OfTile {
  at::Tensor result;    // row-major
  at::Tensor greatest;  // with a dim of one element
  at::Tensor log_sum;   // of exp(x - greatest)
};

OfTile of_tile(const at::Tensor& tile, std::int64_t dim, Form form) {
  const bool is_log = form == Form::LogSoftmax;
  at::Tensor result = is_log ? at::_log_softmax(tile, dim, false) : at::_softmax(tile, dim, false);
  if (tile.size(dim) == 0) {
    std::vector<std::int64_t> shape = tile.sizes().vec();
    shape[static_cast<std::size_t>(dim)] = 1;
    return {result, at::full(shape, kMinusInfinity, tile.options()),
            at::zeros(shape, tile.options())};
  }
  at::Tensor greatest = at::amax(tile, {dim}, true);
  const at::Tensor share = at::amax(result, {dim}, true);  // of the greatest
  at::Tensor log_sum = at::neg(is_log ? share : at::log(share));
  const at::Tensor is_out = greatest.eq(kMinusInfinity);
  // other ranks may have more than minus infinity
  if (!is_out.is_meta() && is_out.any().item<bool>()) {
    log_sum.masked_fill_(is_out, 0);
    result.masked_fill_(is_out, is_log ? kMinusInfinity : 0);
  }
  return {result, greatest, log_sum};
}

// Each rank makes the softmax of its tile; then the greatest elements and the sums travel, and say
// which share of the whole the tile has.
at::Tensor softmax_of_tile(const Payload& self, std::int64_t dim, const Dims& dims, Form form) {
  const auto paid_tile = [&](const at::Tensor& part, ReduceOp op) {
    return payload_of(with_sum_paid(owed_part(part, self, dims, op)))->tile();
  };
  const OfTile mine = of_tile(self.resolved_tile(), dim, form);
  const at::Tensor weight = mine.greatest - paid_tile(mine.greatest, ReduceOp::Max) + mine.log_sum;
  const at::Tensor share = weight - at::log(paid_tile(at::exp(weight), ReduceOp::Sum));
  at::Tensor result = mine.result;
  return form == Form::LogSoftmax ? result.add_(share) : result.mul_(at::exp(share));
}

template <Form form>
Values softmax(Arguments a) {
  const at::Tensor self = with_sum_paid(to_add_up(tensor_at(a, 0)));
  const PayloadPtr payload = payload_of(self);
  const std::int64_t dim = a[1].toInt() < 0 ? a[1].toInt() + self.dim() : a[1].toInt();
  const TensorMeta& meta = payload->spec().meta();
  const DTensorSpec spec = payload->spec().with_meta(TensorMeta(meta.shape(), meta.dtype()));
  const at::Tensor tile = payload->coordinate()
                              ? softmax_of_tile(*payload, dim, one_dim(self, dim), form)
                              : at::Tensor();
  return {in_type(result_of_tile(tile, spec, payload->world()), tensor_at(a, 0).scalar_type())};
}

// (self, dim, dtype): zeros where nothing but minus infinity is.
Values safe_softmax(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const std::int64_t dim = a[1].toInt();
  const at::Tensor is_out = self.eq(kMinusInfinity).all(dim, true);
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

// a - share * sum, in the memory of `share` where that lies as `a` does.
at::Tensor less_share(const at::Tensor& a, at::Tensor share, const at::Tensor& sum) {
  const Payload* of_a = payload_in(a);
  const Payload* of_share = payload_in(share);
  const bool is_alike = of_a && of_share && of_a->spec() == of_share->spec();
  return is_alike ? share.mul_(at::neg(sum)).add_(a) : at::addcmul(a, share, sum, -1);
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
  return {in_type(less_share(whole, share, sum), grad.scalar_type())};
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
      {"_softmax", make_along_cut_dim<softmax<Form::Softmax>>},
      {"_log_softmax", make_along_cut_dim<softmax<Form::LogSoftmax>>},
      {"_safe_softmax", make_safe_softmax},
      {"_softmax_backward_data", make_backward_along_cut_dim<softmax_backward>},
      {"_log_softmax_backward_data", make_backward_along_cut_dim<log_softmax_backward>},
  };
  return table;
}

}  // namespace tegula::inner::families
