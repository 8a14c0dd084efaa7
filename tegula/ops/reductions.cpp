// Reductions, and what else works along a dim.
#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// For ops that reduce nothing, instead of everything, if the list of dims is empty.
SignatureOf unless_list_is_empty(const SignatureOf& signature_of) {
  return [signature_of](const OpSchema& schema) -> std::optional<Signature> {
    const Ints* dims = std::get_if<Ints>(&schema.arguments[1]);
    if (dims != nullptr && dims->empty()) return std::nullopt;
    return signature_of(schema);
  };
}

}  // namespace

void add_reductions(RuleTable& rules) {
  const ReductionForm sum{.over = ReduceOp::Sum, .is_linear = true};
  const ReductionForm mean{.over = ReduceOp::Sum, .is_linear = true, .is_mean = true};
  const ReductionForm product{.over = ReduceOp::Product};
  const ReductionForm max{.over = ReduceOp::Max, .needs_elements = true};
  const ReductionForm min{.over = ReduceOp::Min, .needs_elements = true};
  const ReductionForm one{.results = 1};
  const ReductionForm two{.results = 2};

  const char* const self = "f32[8, 6]";
  const char* const over_dim = "f32[8, 6], dim=1";
  const char* const over_dims = "f32[8, 6], dim=[1]";
  const char* const gradient = "f32[8, 6], f32[8, 6], dim=1";

  rules.add("sum", "sum of all", with_result_type(1, reduction_of_all(sum)), self);
  rules.add("sum.dim_IntList", "sum over dims", with_result_type(3, reduction(sum)), over_dims);
  rules.add("mean", "mean of all", with_result_type(1, reduction_of_all(mean)), self);
  rules.add("mean.dim", "mean over dims", with_result_type(3, reduction(mean)), over_dims);
  rules.add("prod", "product of all", reduction_of_all(product), self);
  rules.add("prod.dim_int", "product over a dim", reduction(product), over_dim);
  rules.add("amax", "maximum over dims", reduction(max), over_dims);
  rules.add("amin", "minimum over dims", reduction(min), over_dims);
  rules.add("max", "maximum of all", reduction_of_all(max), self);
  rules.add("min", "minimum of all", reduction_of_all(min), self);

  for (const char* op : {"max.dim", "min.dim", "median.dim", "nanmedian.dim", "mode"}) {
    rules.add(op, "two results within a dim", reduction_within(two), over_dim);
  }
  for (const char* op : {"argmax", "argmin", "any.dim", "all.dim", "logsumexp", "nansum"}) {
    rules.add(op, "within dims", reduction_within(one), over_dim);
  }
  for (const char* op : {"any.dims", "all.dims"}) {
    rules.add(op, "within dims", unless_list_is_empty(reduction_within(one)), over_dims);
  }
  const ReductionForm after_correction{.dims = 1, .keepdim = 3};
  for (const char* op : {"var.correction", "std.correction"}) {
    rules.add(op, "within dims", reduction_within(after_correction), over_dims);
  }
  const ReductionForm after_order{.dims = 2, .keepdim = 3};
  rules.add("linalg_vector_norm", "within dims", reduction_within(after_order),
            "f32[8, 6], ord=2, dim=[1]");

  rules.add("cumsum", "sum along a dim", with_result_type(2, along_dim(1, "... -> ...")), over_dim);
  for (const char* op : {"cumprod", "logcumsumexp", "_softmax", "_log_softmax"}) {
    rules.add(op, "within a dim", along_dim(1, "~... -> ..."), over_dim);
  }
  rules.add("sort", "within a dim", along_dim(1, "~... -> ..., ...", ResultLayout::LikeOperands),
            over_dim);
  rules.add("_softmax_backward_data", "within a dim", along_dim(2, "... * ~... -> ..."), gradient);
  rules.add("_log_softmax_backward_data", "within a dim", along_dim(2, "... * ~... -> ..."),
            gradient);
}

}  // namespace tegula::inner::families
