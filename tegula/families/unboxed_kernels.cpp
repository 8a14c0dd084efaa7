// Operators that are called so often that they have kernels with their own C++ signatures.
#include <ATen/Operators.h>

#include <map>

#include "tegula/dispatch/unboxed.h"
#include "tegula/families/families.h"

namespace tegula::inner::families {
namespace {

namespace ops = at::_ops;

template <class... Ops>
std::map<std::string, MakeUnboxed> by_name() {
  return {{toString(c10::OperatorName(Ops::name, Ops::overload_name)), &Unboxed<Ops>::kernel}...};
}

}  // namespace

void unboxed_kernels(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeUnboxed> known = by_name<
      // pointwise
      ops::add_Tensor, ops::add_Scalar, ops::sub_Tensor, ops::mul_Tensor, ops::mul_Scalar,
      ops::div_Tensor, ops::div_Scalar, ops::neg, ops::relu, ops::gelu, ops::silu, ops::tanh,
      ops::sigmoid, ops::exp, ops::sqrt, ops::pow_Tensor_Scalar, ops::where_self,
      ops::threshold_backward, ops::gelu_backward, ops::silu_backward, ops::tanh_backward,
      ops::sigmoid_backward,
      // in place
      ops::add__Tensor, ops::add__Scalar, ops::sub__Tensor, ops::mul__Tensor, ops::mul__Scalar,
      ops::div__Tensor, ops::div__Scalar, ops::addcmul_, ops::addcdiv_, ops::lerp__Scalar,
      ops::zero_, ops::copy_, ops::fill__Scalar, ops::sqrt_,
      // products
      ops::mm, ops::addmm, ops::bmm, ops::baddbmm, ops::mv, ops::dot,
      // along dims
      ops::sum, ops::sum_dim_IntList, ops::mean, ops::mean_dim, ops::amax, ops::_softmax,
      ops::_log_softmax, ops::_softmax_backward_data, ops::_log_softmax_backward_data,
      ops::native_layer_norm, ops::native_layer_norm_backward, ops::cat, ops::embedding,
      ops::embedding_dense_backward, ops::_scaled_dot_product_flash_attention_for_cpu,
      ops::_scaled_dot_product_flash_attention_for_cpu_backward, ops::mse_loss,
      ops::mse_loss_backward, ops::cumsum, ops::sort, ops::sort_stable, ops::topk, ops::argmax,
      ops::var_correction, ops::flip, ops::nll_loss_forward, ops::nll_loss_backward,
      // by indices
      ops::gather, ops::index_select, ops::index_add_, ops::scatter_add,
      // images
      ops::convolution, ops::max_pool2d_with_indices, ops::max_pool2d_with_indices_backward,
      ops::native_batch_norm, ops::native_batch_norm_backward,
      // views
      ops::view, ops::_unsafe_view, ops::transpose_int, ops::t, ops::permute, ops::detach,
      ops::alias, ops::unsqueeze, ops::squeeze_dim, ops::expand, ops::slice_Tensor, ops::select_int,
      // new
      ops::ones_like, ops::zeros_like,
      // lists
      ops::_foreach_add__List, ops::_foreach_add__Scalar, ops::_foreach_mul__Scalar,
      ops::_foreach_mul__List, ops::_foreach_addcmul__Scalar, ops::_foreach_addcdiv__Scalar,
      ops::_foreach_addcdiv__ScalarList, ops::_foreach_lerp__Scalar, ops::_foreach_sqrt,
      ops::_foreach_div__ScalarList, ops::_fused_adamw_, ops::_fused_adam_, ops::_fused_sgd_>();
  const auto found = known.find(toString(op.operator_name()));
  if (found != known.end()) notes.unboxed = found->second;
}

}  // namespace tegula::inner::families
