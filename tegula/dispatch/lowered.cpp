// The idea: each function is the op's definition, written with libtorch's functions on distributed
// tensors. Sums along a cut dim stay owed until they are needed, and then one small reduction pays.
#include "tegula/dispatch/lowered.h"

#include <ATen/ATen.h>

#include <map>

#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/differentiable.h"
#include "tegula/dispatch/guards.h"
#include "tegula/dispatch/local_call.h"
#include "tegula/dispatch/picked.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {
namespace {

using Values = std::vector<c10::IValue>;
using Results = std::optional<Values>;

at::Tensor tensor_at(const Call& call, std::size_t index) {
  return call.arguments()[index].toTensor();
}

// Whether some axis cuts the dim.
bool is_cut(const at::Tensor& tensor, std::int64_t dim) {
  const PayloadPtr payload = payload_of(tensor);
  if (!payload || payload->link() || tensor.dim() == 0) return false;
  const std::int64_t wrapped = dim < 0 ? dim + tensor.dim() : dim;
  return payload->spec().dim_cuts()[static_cast<std::size_t>(wrapped)].is_cut();
}

bool is_spread(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  return payload && !payload->link() && !payload->spec().is_replicated();
}

// Means ---------------------------------------------------------------------------------------

std::optional<at::ScalarType> type_at(const Call& call, std::size_t index) {
  const c10::IValue& value = call.arguments()[index];
  return value.isNone() ? std::nullopt : std::optional(value.toScalarType());
}

Results mean_of_all(const Call& call) {
  const at::Tensor self = tensor_at(call, 0);
  if (!is_spread(self) || !at::isFloatingType(self.scalar_type())) return std::nullopt;
  return {{at::sum(self, type_at(call, 1)).div_(self.numel())}};
}

Results mean_over_dims(const Call& call) {
  const at::Tensor self = tensor_at(call, 0);
  if (!is_spread(self) || !at::isFloatingType(self.scalar_type()) || self.dim() == 0) {
    return std::nullopt;
  }
  std::vector<std::int64_t> dims;
  if (!call.arguments()[1].isNone()) dims = call.arguments()[1].toIntVector();
  std::int64_t count = 1;
  for (std::int64_t dim : dims) count *= self.size(dim);
  if (dims.empty()) count = self.numel();
  return {{at::sum(self, dims, call.arguments()[2].toBool(), type_at(call, 3)).div_(count)}};
}

// Softmax along a cut dim ---------------------------------------------------------------------

at::Tensor below_greatest(const at::Tensor& self, std::int64_t dim) {
  return self - at::amax(self, {dim}, true);
}

// libtorch computes halves as floats only if it is told to, elsewhere; of nothing there is no
// greatest.
bool is_cut_softmax(const Call& call) {
  const std::int64_t dim = call.arguments()[1].toInt();
  const at::Tensor self = tensor_at(call, 0);
  return is_cut(self, dim) && self.size(dim) > 0 && !call.arguments()[2].toBool();
}

Results softmax(const Call& call) {
  const std::int64_t dim = call.arguments()[1].toInt();
  if (!is_cut_softmax(call)) return std::nullopt;
  const at::Tensor e = at::exp(below_greatest(tensor_at(call, 0), dim));
  return {{e / at::sum(e, {dim}, true)}};
}

Results log_softmax(const Call& call) {
  const std::int64_t dim = call.arguments()[1].toInt();
  if (!is_cut_softmax(call)) return std::nullopt;
  const at::Tensor below = below_greatest(tensor_at(call, 0), dim);
  return {{below - at::log(at::sum(at::exp(below), {dim}, true))}};
}

Results softmax_backward(const Call& call) {
  const at::Tensor grad = tensor_at(call, 0);
  const at::Tensor output = tensor_at(call, 1);
  const std::int64_t dim = call.arguments()[2].toInt();
  if (!is_cut(output, dim) || grad.scalar_type() != output.scalar_type()) return std::nullopt;
  const at::Tensor weighed = grad * output;
  return {{weighed - output * at::sum(weighed, {dim}, true)}};
}

Results log_softmax_backward(const Call& call) {
  const at::Tensor grad = tensor_at(call, 0);
  const at::Tensor output = tensor_at(call, 1);
  const std::int64_t dim = call.arguments()[2].toInt();
  if (!is_cut(output, dim) || grad.scalar_type() != output.scalar_type()) return std::nullopt;
  return {{grad - at::exp(output) * at::sum(grad, {dim}, true)}};
}

bool is_given(const Call& call, std::size_t index) {
  const c10::IValue& value = call.arguments()[index];
  return value.isTensor() && value.toTensor().defined();
}

// The same tensor, owing nothing.
at::Tensor with_sum_paid(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  return payload ? move_to(tensor, with_reductions_done(payload->spec()), When::Now, std::nullopt)
                 : tensor;
}

// Losses ----------------------------------------------------------------------------------------

Results mse_loss(const Call& call) {
  const at::Tensor self = tensor_at(call, 0);
  if (!is_spread(self) || call.arguments()[2].toInt() != at::Reduction::Mean) return std::nullopt;
  const at::Tensor target = tensor_at(call, 1);
  if (self.sizes() != target.sizes()) return std::nullopt;
  const at::Tensor difference = self - target;
  return {{at::sum(difference * difference).div_(self.numel())}};
}

Results mse_loss_backward(const Call& call) {
  const at::Tensor self = tensor_at(call, 1);
  const at::Tensor target = tensor_at(call, 2);
  if (!is_spread(self) || self.sizes() != target.sizes()) return std::nullopt;
  const bool is_mean = call.arguments()[3].toInt() == at::Reduction::Mean;
  const double scale = is_mean ? 2.0 / static_cast<double>(self.numel()) : 2.0;
  return {{(self - target) * (tensor_at(call, 0) * scale)}};
}

// The class of each row is looked up where it is.
Results nll_loss(const Call& call) {
  const at::Tensor self = tensor_at(call, 0);
  const at::Tensor target = tensor_at(call, 1);
  if (self.dim() != 2 || target.dim() != 1 || is_given(call, 2)) return std::nullopt;
  const std::int64_t reduction = call.arguments()[3].toInt();
  const bool is_within_rule = !is_cut(self, 1) && reduction != at::Reduction::Mean;
  if (!is_spread(self) || is_within_rule) return std::nullopt;
  const std::int64_t ignored = call.arguments()[4].toInt();
  const std::optional<at::Tensor> picked = picked_along_rows(self, target, ignored);
  if (!picked) return std::nullopt;
  const at::Tensor total = at::sum(at::ne(target, ignored), self.scalar_type());
  if (reduction == at::Reduction::None) return {{at::neg(*picked), at::zeros_like(total)}};
  const at::Tensor loss = at::neg(at::sum(*picked));
  if (reduction != at::Reduction::Mean) return {{loss, total}};
  const at::Tensor paid = with_sum_paid(total);  // the gradient divides by it, too
  return {{loss / paid, paid}};
}

Results nll_loss_backward(const Call& call) {
  const at::Tensor self = tensor_at(call, 1);
  const at::Tensor target = tensor_at(call, 2);
  if (self.dim() != 2 || target.dim() != 1 || is_given(call, 3)) return std::nullopt;
  if (!is_cut(self, 1)) return std::nullopt;
  const bool is_mean = call.arguments()[4].toInt() == at::Reduction::Mean;
  const at::Tensor grad = is_mean ? tensor_at(call, 0) / tensor_at(call, 6) : tensor_at(call, 0);
  const std::optional<at::Tensor> put =
      put_along_rows(at::neg(grad), self, target, call.arguments()[5].toInt());
  return put ? Results({{*put}}) : std::nullopt;
}

const std::map<std::string, Results (*)(const Call&)>& lowered_ops() {
  static const std::map<std::string, Results (*)(const Call&)> table = {
      {"aten::mean", mean_of_all},
      {"aten::mean.dim", mean_over_dims},
      {"aten::_softmax", softmax},
      {"aten::_log_softmax", log_softmax},
      {"aten::_softmax_backward_data", softmax_backward},
      {"aten::_log_softmax_backward_data", log_softmax_backward},
      {"aten::mse_loss", mse_loss},
      {"aten::mse_loss_backward", mse_loss_backward},
      {"aten::nll_loss_forward", nll_loss},
      {"aten::nll_loss_backward", nll_loss_backward},
  };
  return table;
}

}  // namespace

std::optional<std::vector<c10::IValue>> run_lowered(const Call& call) {
  const auto found = lowered_ops().find(call.facts().name);
  if (found == lowered_ops().end()) return std::nullopt;
  const BelowAutograd below;
  const OnPurpose exchange;
  const CommLabel label(call.facts().name, CommLabel::Reach::OverInnerLabels);
  return found->second(call);
}

}  // namespace tegula
