// The idea: each of them is linear, so its gradient is the transposed collective, which is one of
// them again: backward calls the differentiable function, and so can be differentiated.
#include "tegula/tensor/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tegula/base/error.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

void check_is_plain(const at::Tensor& tensor) {
  if (tensor.defined() && !is_dtensor(tensor)) return;
  throw UsageError("a collective among ranks takes a plain tensor")
      .fact("tensor", described(tensor))
      .hint("redistribute(x, placements) moves a DTensor; to_local(x) is this rank's tile");
}

void check_has_gradient(const at::Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::Sum || op == ReduceOp::Avg || !tensor.requires_grad() ||
      !at::GradMode::is_enabled()) {
    return;
  }
  throw UsageError("only sums and averages of ranks' tensors have a gradient")
      .fact("reduction", std::string(name_of(op)))
      .fact("tensor", described(tensor))
      .hint("detach the tensor, or use ReduceOp::Sum");
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& tensor, const Group& group, ReduceOp op) {
  check_is_plain(tensor);
  check_has_gradient(tensor, op);
  const auto reduced = [=](const at::Tensor& x) { return group.all_reduce(x, op); };
  return apply_linear(tensor, reduced, reduced);
}

at::Tensor reduce_scatter(const at::Tensor& tensor, const Group& group, std::int64_t dim,
                          ReduceOp op, const Group::Sizes& sizes) {
  check_is_plain(tensor);
  check_has_gradient(tensor, op);
  return apply_linear(
      tensor, [=](const at::Tensor& x) { return group.reduce_scatter(x, dim, op, sizes); },
      [=](const at::Tensor& x) {
        const at::Tensor whole = group.all_gather(x, dim, sizes);
        return op == ReduceOp::Avg ? whole / group.size() : whole;
      });
}

at::Tensor all_gather(const at::Tensor& tensor, const Group& group, std::int64_t dim,
                      const Group::Sizes& sizes) {
  check_is_plain(tensor);
  return apply_linear(
      tensor, [=](const at::Tensor& x) { return group.all_gather(x, dim, sizes); },
      [=](const at::Tensor& x) { return group.reduce_scatter(x, dim, ReduceOp::Sum, sizes); });
}

at::Tensor all_to_all(const at::Tensor& tensor, const Group& group, std::int64_t split_dim,
                      std::int64_t join_dim, const Group::Sizes& split_sizes,
                      const Group::Sizes& join_sizes) {
  check_is_plain(tensor);
  return apply_linear(
      tensor,
      [=](const at::Tensor& x) {
        return group.all_to_all(x, split_dim, join_dim, split_sizes, join_sizes);
      },
      [=](const at::Tensor& x) {
        return group.all_to_all(x, join_dim, split_dim, join_sizes, split_sizes);
      });
}

at::Tensor broadcast(const at::Tensor& tensor, const Group& group, int root) {
  check_is_plain(tensor);
  return apply_linear(
      tensor, [=](const at::Tensor& x) { return group.broadcast(x, root); },
      [=](const at::Tensor& x) {
        const at::Tensor sum = group.all_reduce(x, ReduceOp::Sum);
        return group.index() == root ? sum : at::zeros_like(sum);
      });
}

at::Tensor permute(const at::Tensor& tensor, const Group& group, const std::vector<int>& to) {
  check_is_plain(tensor);
  std::vector<int> back(to.size(), -1);
  for (std::size_t from = 0; from < to.size(); ++from) {
    const auto target = static_cast<std::size_t>(to[from]);
    if (to[from] >= 0 && target < back.size()) back[target] = static_cast<int>(from);
  }
  const auto sent = [=](const std::vector<int>& where) {
    return [=](const at::Tensor& x) {
      const at::Tensor came = group.permute(x, where);
      return came.defined() ? came : at::zeros_like(x);
    };
  };
  return apply_linear(tensor, sent(to), sent(back));
}

}  // namespace tegula
