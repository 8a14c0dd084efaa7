// Ops made of other ops on DTensors, where a dim that they work along is cut: what has to be
// exchanged are totals, not tensors. Each is the op's definition. Sums along a cut dim stay owed
// until they are needed, and then one small reduction pays.
#include <ATen/ATen.h>

#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/families/picked.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::families {
namespace {

const at::Tensor& tensor_at(Arguments arguments, std::size_t index) {
  return arguments[index].toTensor();
}

// Whether some axis cuts the dim.
bool is_cut(const at::Tensor& tensor, std::int64_t dim) {
  const Payload* payload = payload_in(tensor);
  if (!payload || payload->link() || tensor.dim() == 0) return false;
  const std::int64_t wrapped = dim < 0 ? dim + tensor.dim() : dim;
  return payload->spec().dim_cuts()[static_cast<std::size_t>(wrapped)].is_cut();
}

bool is_spread(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->link() && !payload->spec().is_replicated();
}

// Halves --------------------------------------------------------------------------------------

// The type to add up in. libtorch adds halves up as floats and rounds once, at the end: their sum
// may be more than a half can hold where their mean is not.
at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

// The same in another floating-point type. What is owed stays owed: each rank converts its part.
at::Tensor in_type(const at::Tensor& tensor, at::ScalarType type) {
  const PayloadPtr payload = payload_of(tensor);
  if (tensor.scalar_type() == type) return tensor;
  if (!payload || payload->link()) return tensor.to(type);
  const TensorMeta meta = dense(payload->spec().meta());
  const DTensorSpec spec =
      payload->spec().with_meta(TensorMeta(meta.shape(), meta.stride(), dtype_of(type)));
  const at::Tensor tile = fresh_tile(spec, payload->world());
  if (payload->coordinate()) tile.copy_(payload->tile());
  return outer_tensor(tile, spec, payload->world());
}

// A half as a float, for sums.
at::Tensor to_add_up(const at::Tensor& tensor) {
  return in_type(tensor, sum_type(tensor.scalar_type()));
}

// Means ---------------------------------------------------------------------------------------

std::optional<at::ScalarType> type_at(Arguments arguments, std::size_t index) {
  const c10::IValue& value = arguments[index];
  return value.isNone() ? std::nullopt : std::optional(value.toScalarType());
}

enum class ReducedDims { Dropped, Kept };

// Over these dims; all if there are none. Parts of a mean are owed, never parts of a sum of halves.
at::Tensor mean_over(const at::Tensor& self, const std::vector<std::int64_t>& dims,
                     ReducedDims reduced, std::optional<at::ScalarType> asked) {
  const at::ScalarType type = asked.value_or(self.scalar_type());
  std::optional<at::ScalarType> added_in = sum_type(type);
  if (added_in == self.scalar_type()) added_in.reset();
  std::int64_t count = dims.empty() ? self.numel() : 1;
  for (std::int64_t dim : dims) count *= self.size(dim);
  const bool keeps_dims = reduced == ReducedDims::Kept;
  const at::Tensor sum = dims.empty() && !keeps_dims ? at::sum(self, added_in)
                                                     : at::sum(self, dims, keeps_dims, added_in);
  return in_type(sum.div_(count), type);
}

Values mean(Arguments a) {
  return {mean_over(tensor_at(a, 0), {}, ReducedDims::Dropped, type_at(a, 1))};
}

Values mean_over_dims(Arguments a) {
  std::vector<std::int64_t> dims;
  if (!a[1].isNone()) dims = a[1].toIntVector();
  const ReducedDims reduced = a[2].toBool() ? ReducedDims::Kept : ReducedDims::Dropped;
  return {mean_over(tensor_at(a, 0), dims, reduced, type_at(a, 3))};
}

bool is_spread_float(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return is_spread(self) && at::isFloatingType(self.scalar_type());
}

Recipe make_mean(const Call& call) { return is_spread_float(call) ? mean : nullptr; }

Recipe make_mean_over_dims(const Call& call) {
  const bool has_dims = tensor_at(call.arguments(), 0).dim() > 0;
  return is_spread_float(call) && has_dims ? mean_over_dims : nullptr;
}

// Softmax along a cut dim ---------------------------------------------------------------------

at::Tensor below_greatest(const at::Tensor& self, std::int64_t dim) {
  return self - at::amax(self, {dim}, true);
}

Values softmax(Arguments a) {
  const std::int64_t dim = a[1].toInt();
  const at::Tensor& self = tensor_at(a, 0);
  const at::Tensor e = at::exp(below_greatest(to_add_up(self), dim));
  return {in_type(e / at::sum(e, {dim}, true), self.scalar_type())};
}

Values log_softmax(Arguments a) {
  const std::int64_t dim = a[1].toInt();
  const at::Tensor& self = tensor_at(a, 0);
  const at::Tensor below = below_greatest(to_add_up(self), dim);
  return {in_type(below - at::log(at::sum(at::exp(below), {dim}, true)), self.scalar_type())};
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
  return {in_type(weighed - share * at::sum(weighed, {a[2].toInt()}, true), grad.scalar_type())};
}

Values log_softmax_backward(Arguments a) {
  const at::Tensor& grad = tensor_at(a, 0);
  const at::Tensor whole = to_add_up(grad);
  const at::Tensor share = at::exp(to_add_up(tensor_at(a, 1)));
  return {in_type(whole - share * at::sum(whole, {a[2].toInt()}, true), grad.scalar_type())};
}

template <Values (*run)(Arguments)>
Recipe make_backward_along_cut_dim(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& output = tensor_at(a, 1);
  const bool same_type = tensor_at(a, 0).scalar_type() == output.scalar_type();
  return is_cut(output, a[2].toInt()) && same_type ? run : nullptr;
}

// Losses --------------------------------------------------------------------------------------

bool is_mean(const c10::IValue& reduction) { return reduction.toInt() == at::Reduction::Mean; }

Values mse_loss(Arguments a) {
  const at::Tensor difference = tensor_at(a, 0) - tensor_at(a, 1);
  return {mean_over(difference * difference, {}, ReducedDims::Dropped, std::nullopt)};
}

Recipe make_mse_loss(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const bool fits = is_mean(a[2]) && self.sizes() == tensor_at(a, 1).sizes();
  return is_spread(self) && fits ? mse_loss : nullptr;
}

Values mse_loss_backward(Arguments a) {
  const at::Tensor& self = tensor_at(a, 1);
  const double scale = is_mean(a[3]) ? 2.0 / static_cast<double>(self.numel()) : 2.0;
  return {(self - tensor_at(a, 2)) * (tensor_at(a, 0) * scale)};
}

Recipe make_mse_loss_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 1);
  return is_spread(self) && self.sizes() == tensor_at(a, 2).sizes() ? mse_loss_backward : nullptr;
}

bool is_given(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

// The same tensor, owing nothing.
at::Tensor with_sum_paid(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  return payload ? move_to(tensor, with_reductions_done(payload->spec()), CallMode::Sync, {})
                 : tensor;
}

// The class of each row is looked up where it is.
Values nll_loss(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const at::Tensor& target = tensor_at(a, 1);
  const std::int64_t reduction = a[3].toInt();
  const std::int64_t ignored = a[4].toInt();
  const at::Tensor picked = picked_along_rows(self, target, ignored);
  const at::ScalarType type = self.scalar_type();
  const at::Tensor total = at::sum(at::ne(target, ignored), sum_type(type));
  if (reduction == at::Reduction::None) {
    return {at::neg(picked), in_type(at::zeros_like(total), type)};
  }
  const at::Tensor loss = at::neg(at::sum(to_add_up(picked)));
  if (reduction != at::Reduction::Mean) return {in_type(loss, type), in_type(total, type)};
  const at::Tensor paid = with_sum_paid(total);  // the gradient divides by it, too
  return {in_type(loss / paid, type), in_type(paid, type)};
}

// Where the classes are not cut, the rule covers all but the mean.
Recipe make_nll_loss(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  if (self.dim() != 2 || tensor_at(a, 1).dim() != 1 || is_given(a[2])) return nullptr;
  const bool needs_totals = is_cut(self, 1) || is_mean(a[3]);
  return is_spread(self) && needs_totals && can_pick_along_rows(self) ? nll_loss : nullptr;
}

Values nll_loss_backward(Arguments a) {
  const at::Tensor grad = is_mean(a[4]) ? tensor_at(a, 0) / tensor_at(a, 6) : tensor_at(a, 0);
  return {put_along_rows(at::neg(grad), tensor_at(a, 1), tensor_at(a, 2), a[5].toInt())};
}

Recipe make_nll_loss_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 1);
  if (self.dim() != 2 || tensor_at(a, 2).dim() != 1 || is_given(a[3])) return nullptr;
  return is_cut(self, 1) && can_pick_along_rows(self) ? nll_loss_backward : nullptr;
}

}  // namespace

void decompositions(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::mean", make_mean},
      {"aten::mean.dim", make_mean_over_dims},
      {"aten::_softmax", make_along_cut_dim<softmax>},
      {"aten::_log_softmax", make_along_cut_dim<log_softmax>},
      {"aten::_softmax_backward_data", make_backward_along_cut_dim<softmax_backward>},
      {"aten::_log_softmax_backward_data", make_backward_along_cut_dim<log_softmax_backward>},
      {"aten::mse_loss", make_mse_loss},
      {"aten::mse_loss_backward", make_mse_loss_backward},
      {"aten::nll_loss_forward", make_nll_loss},
      {"aten::nll_loss_backward", make_nll_loss_backward},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::families
