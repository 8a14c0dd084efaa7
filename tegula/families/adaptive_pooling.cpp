// Pooling to a given size, over spatial dims that are cut: where the size divides the image's, all
// windows are alike and it is plain pooling.
#include <ATen/ATen.h>

#include <map>

#include "tegula/families/families.h"
#include "tegula/families/windows.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

using Kernel = std::vector<std::int64_t>;

// None if no spatial dim is cut, or windows differ.
std::optional<Kernel> kernel_for(const at::Tensor& self, const std::vector<std::int64_t>& outputs) {
  const Payload* payload = payload_in(self);
  const std::size_t windows = outputs.size();
  const auto ndim = static_cast<std::size_t>(self.dim());
  if (!payload || payload->link() || (ndim != windows + 1 && ndim != windows + 2) ||
      self.numel() == 0 || !is_cut_from(payload->spec(), ndim - windows)) {
    return std::nullopt;
  }
  Kernel kernel;
  for (std::size_t k = 0; k < windows; ++k) {
    const std::int64_t inputs = self.sizes()[ndim - windows + k];
    if (outputs[k] < 1 || inputs % outputs[k] != 0) return std::nullopt;
    kernel.push_back(inputs / outputs[k]);
  }
  return kernel;
}

// Of a gradient: the kernel that gave it.
std::optional<Kernel> kernel_of_gradient(const at::Tensor& grad, const at::Tensor& self,
                                         std::size_t windows) {
  if (grad.dim() != self.dim() || static_cast<std::size_t>(grad.dim()) < windows) {
    return std::nullopt;
  }
  return kernel_for(self, grad.sizes().slice(grad.sizes().size() - windows).vec());
}

// (self, output_size)
std::optional<Kernel> kernel_of_result(const Call& call, std::size_t windows) {
  const Arguments a = call.arguments();
  const std::vector<std::int64_t> outputs = per_window(a[1].toIntVector(), windows, {});
  return outputs.size() == windows ? kernel_for(a[0].toTensor(), outputs) : std::nullopt;
}

template <std::size_t dims>
Recipe make_adaptive_averages(const Call& call) {
  const std::optional<Kernel> kernel = kernel_of_result(call, dims);
  if (!kernel) return nullptr;
  return [kernel = *kernel](Arguments arguments) -> Values {
    const at::Tensor& self = arguments[0].toTensor();
    return {dims == 2 ? at::avg_pool2d(self, kernel) : at::avg_pool3d(self, kernel)};
  };
}

template <std::size_t dims>
Recipe make_adaptive_averages_backward(const Call& call) {
  const Arguments a = call.arguments();
  const std::optional<Kernel> kernel = kernel_of_gradient(a[0].toTensor(), a[1].toTensor(), dims);
  if (!kernel) return nullptr;
  return [kernel = *kernel](Arguments arguments) -> Values {
    const at::Tensor& grad = arguments[0].toTensor();
    const at::Tensor& self = arguments[1].toTensor();
    const Kernel none(dims, 0);
    return {
        dims == 2
            ? at::avg_pool2d_backward(grad, self, kernel, kernel, none, false, true, std::nullopt)
            : at::avg_pool3d_backward(grad, self, kernel, kernel, none, false, true, std::nullopt)};
  };
}

template <std::size_t dims>
Recipe make_adaptive_maxima(const Call& call) {
  const std::optional<Kernel> kernel = kernel_of_result(call, dims);
  if (!kernel) return nullptr;
  return [kernel = *kernel](Arguments arguments) -> Values {
    const at::Tensor& self = arguments[0].toTensor();
    auto [values, indices] = dims == 2 ? at::max_pool2d_with_indices(self, kernel)
                                       : at::max_pool3d_with_indices(self, kernel);
    return {values, indices};
  };
}

template <std::size_t dims>
Recipe make_adaptive_maxima_backward(const Call& call) {
  const Arguments a = call.arguments();
  const std::optional<Kernel> kernel = kernel_of_gradient(a[0].toTensor(), a[1].toTensor(), dims);
  if (!kernel) return nullptr;
  return [kernel = *kernel](Arguments arguments) -> Values {
    const at::Tensor& grad = arguments[0].toTensor();
    const at::Tensor& self = arguments[1].toTensor();
    const at::Tensor& indices = arguments[2].toTensor();
    const Kernel none(dims, 0);
    const Kernel ones(dims, 1);
    return {dims == 2 ? at::max_pool2d_with_indices_backward(grad, self, kernel, kernel, none, ones,
                                                             false, indices)
                      : at::max_pool3d_with_indices_backward(grad, self, kernel, kernel, none, ones,
                                                             false, indices)};
  };
}

}  // namespace

void adaptive_pooling(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::_adaptive_avg_pool2d", make_adaptive_averages<2>},
      {"aten::_adaptive_avg_pool3d", make_adaptive_averages<3>},
      {"aten::_adaptive_avg_pool2d_backward", make_adaptive_averages_backward<2>},
      {"aten::_adaptive_avg_pool3d_backward", make_adaptive_averages_backward<3>},
      {"aten::adaptive_max_pool2d", make_adaptive_maxima<2>},
      {"aten::adaptive_max_pool3d", make_adaptive_maxima<3>},
      {"aten::adaptive_max_pool2d_backward", make_adaptive_maxima_backward<2>},
      {"aten::adaptive_max_pool3d_backward", make_adaptive_maxima_backward<3>},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
