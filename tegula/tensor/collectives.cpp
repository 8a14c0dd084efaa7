// The idea: each of them is linear, so its gradient is the transposed collective, which is one of
// them again: backward calls the differentiable function, and so can be differentiated.
#include "tegula/tensor/collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "tegula/base/error.h"
#include "tegula/operators/call.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

using Collective = std::function<at::Tensor(const at::Tensor&)>;

struct Transposed : torch::CustomClassHolder {
  explicit Transposed(Collective collective) : run(std::move(collective)) {}
  Collective run;
};

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor,
                            const Collective& collective, const Collective& transposed) {
    context->saved_data["transposed"] =
        c10::IValue::make_capsule(c10::make_intrusive<Transposed>(transposed));
    const at::AutoDispatchBelowADInplaceOrView below;
    return collective(tensor);
  }

  // All ranks take part, also one that was given no gradient.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto transposed = context->saved_data["transposed"].toCapsule();
    return {static_cast<Transposed*>(transposed.get())->run(grads.front()), at::Tensor(),
            at::Tensor()};
  }
};

at::Tensor apply(const at::Tensor& tensor, const Collective& collective,
                 const Collective& transposed) {
  if (is_dtensor(tensor) || !tensor.defined()) {
    throw UsageError("a collective among ranks takes a plain tensor")
        .fact("tensor", described(tensor))
        .hint("redistribute(x, placements) moves a DTensor; to_local(x) is this rank's tile");
  }
  return Linear::apply(tensor, collective, transposed);
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
  check_has_gradient(tensor, op);
  return apply(
      tensor, [=](const at::Tensor& x) { return group.all_reduce(x, op); },
      [=](const at::Tensor& grad) { return all_reduce(grad, group, op); });
}

at::Tensor reduce_scatter(const at::Tensor& tensor, const Group& group, std::int64_t dim,
                          ReduceOp op, const Group::Sizes& sizes) {
  check_has_gradient(tensor, op);
  return apply(
      tensor, [=](const at::Tensor& x) { return group.reduce_scatter(x, dim, op, sizes); },
      [=](const at::Tensor& grad) {
        const at::Tensor whole = all_gather(grad, group, dim, sizes);
        return op == ReduceOp::Avg ? whole / group.size() : whole;
      });
}

at::Tensor all_gather(const at::Tensor& tensor, const Group& group, std::int64_t dim,
                      const Group::Sizes& sizes) {
  return apply(
      tensor, [=](const at::Tensor& x) { return group.all_gather(x, dim, sizes); },
      [=](const at::Tensor& grad) {
        return reduce_scatter(grad, group, dim, ReduceOp::Sum, sizes);
      });
}

at::Tensor all_to_all(const at::Tensor& tensor, const Group& group, std::int64_t split_dim,
                      std::int64_t join_dim, const Group::Sizes& split_sizes,
                      const Group::Sizes& join_sizes) {
  return apply(
      tensor,
      [=](const at::Tensor& x) {
        return group.all_to_all(x, split_dim, join_dim, split_sizes, join_sizes);
      },
      [=](const at::Tensor& grad) {
        return all_to_all(grad, group, join_dim, split_dim, join_sizes, split_sizes);
      });
}

at::Tensor broadcast(const at::Tensor& tensor, const Group& group, int root) {
  return apply(
      tensor, [=](const at::Tensor& x) { return group.broadcast(x, root); },
      [=](const at::Tensor& grad) {
        const at::Tensor sum = all_reduce(grad, group);
        // not zeros of its own: the others take part when this is differentiated
        return sum.masked_fill(at::scalar_tensor(group.index() != root, at::kBool), 0);
      });
}

at::Tensor permute(const at::Tensor& tensor, const Group& group, const std::vector<int>& to) {
  std::vector<int> back(to.size(), -1);
  for (std::size_t from = 0; from < to.size(); ++from) {
    const auto target = static_cast<std::size_t>(to[from]);
    if (to[from] >= 0 && target < back.size()) back[target] = static_cast<int>(from);
  }
  return apply(
      tensor,
      [=](const at::Tensor& x) {
        const at::Tensor came = group.permute(x, to);
        return came.defined() ? came : at::zeros_like(x);
      },
      [=](const at::Tensor& grad) { return permute(grad, group, back); });
}

}  // namespace tegula
