// Reductions, and what else works along a dim.
#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::families {

namespace {

// libtorch reduces over no dims if the list is empty, where others take all.
SignatureOf over_listed_dims(const ReductionForm& form) {
  return [form](const OpSchema& schema) -> std::optional<Signature> {
    if (!schema.is_none(form.dims) && schema.ints(form.dims).empty()) return std::nullopt;
    return reduction_within(form)(schema);
  };
}

}  // namespace

void add_reductions(RuleTable& rules) {
  const ReductionForm sum{ReduceOp::Sum, true, 1, 2, 1, false};
  const ReductionForm product{ReduceOp::Product, false, 1, 2, 1, false};
  const ReductionForm max{ReduceOp::Max, false, 1, 2, 1, true};
  const ReductionForm min{ReduceOp::Min, false, 1, 2, 1, true};
  const ReductionForm one{ReduceOp::Sum, false, 1, 2, 1, false};
  const ReductionForm two{ReduceOp::Sum, false, 1, 2, 2, false};

  rules.add("sum", "sum of all", with_result_type(1, reduction_of_all(sum)));
  rules.add("sum.dim_IntList", "sum over dims", with_result_type(3, reduction(sum)));
  rules.add("prod", "product of all", reduction_of_all(product));
  rules.add("prod.dim_int", "product over a dim", reduction(product));
  rules.add("amax", "maximum over dims", reduction(max));
  rules.add("amin", "minimum over dims", reduction(min));
  rules.add("max", "maximum of all", reduction_of_all(max));
  rules.add("min", "minimum of all", reduction_of_all(min));

  for (const char* op : {"max.dim", "min.dim", "median.dim", "nanmedian.dim", "mode"}) {
    rules.add(op, "two results within a dim", reduction_within(two));
  }
  for (const char* op : {"argmax", "argmin", "any.dim", "all.dim", "logsumexp", "nansum"}) {
    rules.add(op, "within dims", reduction_within(one));
  }
  for (const char* op : {"any.dims", "all.dims"}) {
    rules.add(op, "within dims", over_listed_dims(one));
  }
  const ReductionForm after_correction{ReduceOp::Sum, false, 1, 3, 1, false};
  for (const char* op : {"var.correction", "std.correction"}) {
    rules.add(op, "within dims", reduction_within(after_correction));
  }
  const ReductionForm after_order{ReduceOp::Sum, false, 2, 3, 1, false};
  rules.add("linalg_vector_norm", "within dims", reduction_within(after_order));

  rules.add("cumsum", "sum along a dim", with_result_type(2, along_dim(1, "... -> ...")));
  for (const char* op : {"cumprod", "logcumsumexp", "_softmax", "_log_softmax"}) {
    rules.add(op, "within a dim", along_dim(1, "~... -> ..."));
  }
  rules.add("sort", "within a dim", along_dim(1, "~... -> ..., ...", ResultLayout::LikeOperands));
  rules.add("_softmax_backward_data", "within a dim", along_dim(2, "... * ~... -> ..."));
  rules.add("_log_softmax_backward_data", "within a dim", along_dim(2, "... * ~... -> ..."));
}

}  // namespace tegula::families
