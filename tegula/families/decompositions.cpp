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

namespace tegula::inner::families {
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
      {"aten::_softmax", make_along_cut_dim<softmax>},
      {"aten::_log_softmax", make_along_cut_dim<log_softmax>},
      {"aten::_softmax_backward_data", make_backward_along_cut_dim<softmax_backward>},
      {"aten::_log_softmax_backward_data", make_backward_along_cut_dim<log_softmax_backward>},
      {"aten::nll_loss_forward", make_nll_loss},
      {"aten::nll_loss_backward", make_nll_loss_backward},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
