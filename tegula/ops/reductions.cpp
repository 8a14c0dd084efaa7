// Reductions, and what else works along a dim.
#include <algorithm>

#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// The place of an argument that an op does not have.
constexpr std::size_t kNever = 99;

// For ops that reduce nothing, instead of everything, if the list of dims is empty.
SignatureOf unless_list_is_empty(const SignatureOf& signature_of) {
  return [signature_of](const OpSchema& schema) -> std::optional<Signature> {
    const Ints* dims = std::get_if<Ints>(&schema.arguments[1]);
    if (dims != nullptr && dims->empty()) return std::nullopt;
    return signature_of(schema);
  };
}

// (self, k, dim, ...) -> the greatest k along the dim, and where they are
std::optional<Signature> greatest_few(const OpSchema& schema) {
  const Shape& shape = schema.spec(0).shape();
  if (shape.empty()) return std::nullopt;
  const std::size_t along = wrapped_dim(schema.integer(2), shape.size());
  Signature signature;
  const Term self = own_factors(signature, shape);
  signature.is_whole[along] = true;
  Term result = self;
  result.factors[along] = kNoFactor;
  result.sizes[along] = schema.integer(1);
  signature.operands = {{self}};
  signature.results = {{result}, {result}};
  return signature;
}

// How many elements of a sorted sequence stand before each value: where the sequence is cut, a sum
// over its shards. Sequences of several dims have those of the values; one of a single dim, or
// values without any, stand for all.
std::optional<Signature> search(const OpSchema& schema, std::size_t sequence, std::size_t values) {
  const Shape& sorted = schema.spec(sequence).shape();
  if (sorted.empty() || schema.tensors.size() > 2) return std::nullopt;
  Signature signature;
  const Term ranks = own_factors(signature, sorted);
  signature.operands.resize(schema.tensors.size());
  signature.operands[sequence] = {ranks};
  Term result;
  if (schema.tensors.size() == 2) {
    const Shape& wanted = schema.spec(values).shape();
    const bool is_shared = sorted.size() == 1;
    if (!is_shared && (wanted.size() != sorted.size() ||
                       !std::equal(sorted.begin(), sorted.end() - 1, wanted.begin()))) {
      return std::nullopt;
    }
    for (std::size_t dim = 0; dim < wanted.size(); ++dim) {
      const bool is_own = is_shared || dim + 1 == wanted.size();
      result.factors.push_back(is_own ? signature.add_factor(wanted[dim]) : ranks.factors[dim]);
      result.sizes.push_back(wanted[dim]);
    }
    signature.operands[values] = {result};
  } else if (sorted.size() != 1) {
    return std::nullopt;
  }
  signature.results = {{result}};
  return signature;
}

// (sequences, values, out_int32, right, side, sorter): the sorter says how sequences are sorted.
std::optional<Signature> search_by_sorter(const OpSchema& schema) {
  const Shape& sequences = schema.spec(0).shape();
  const Shape& values = schema.spec(1).shape();
  if (sequences.empty() || !has_shape_if_given(schema, 5, sequences)) return std::nullopt;
  if (sequences.size() > 1) {
    if (values.size() != sequences.size()) return std::nullopt;
    if (!std::equal(values.begin(), values.end() - 1, sequences.begin())) return std::nullopt;
  }
  Signature signature;
  const Term self = own_factors(signature, values);
  Term sequence{{}, sequences};
  for (std::size_t dim = 0; dim + 1 < sequences.size(); ++dim) {
    sequence.factors.push_back(self.factors[dim]);
  }
  sequence.factors.push_back(kNoFactor);
  signature.operands = {{sequence}, {self}};
  add_optional_operand(signature, schema, 5, sequence);
  signature.results = {{self}};
  return signature;
}

std::optional<Signature> searchsorted(const OpSchema& schema) {
  return schema.tensors.size() > 2 ? search_by_sorter(schema) : search(schema, 0, 1);
}

std::optional<Signature> bucketize(const OpSchema& schema) {
  return search(schema, schema.tensors.size() - 1, 0);
}

// (elements, test_elements, assume_unique, invert), where either may be a number: an element is
// among those of some shard, or among those of none.
std::optional<Signature> is_among(const OpSchema& schema) {
  Signature signature;
  Result result;
  if (schema.tensors.size() == 2) {
    result.term = own_factors(signature, schema.spec(0).shape());
    signature.operands = {{result.term}};
  }
  signature.operands.push_back({own_factors(signature, schema.tensors.back()->shape())});
  signature.results = {result};
  signature.over = schema.flag(3) ? ReduceOp::Min : ReduceOp::Max;
  return signature;
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
  for (const char* op : {"argmax", "argmin", "logsumexp"}) {
    rules.add(op, "within dims", reduction_within(one), over_dim);
  }
  rules.add("aminmax", "two results within a dim", reduction_within(two), over_dim);
  rules.add("kthvalue", "two results within a dim",
            reduction_within({.dims = 2, .keepdim = 3, .results = 2}), "f32[8, 6], k=2, dim=1");

  const ReductionForm some{.over = ReduceOp::Max};
  const ReductionForm every{.over = ReduceOp::Min};
  for (const auto& [op, form] : {std::pair("any", some), std::pair("all", every)}) {
    const std::string name = op;
    rules.add(name, "of all", reduction_of_all(form), self);
    rules.add(name + ".dim", "over a dim", reduction(form), over_dim);
    rules.add(name + ".dims", "over dims", unless_list_is_empty(reduction(form)), over_dims);
    rules.add("_is_" + name + "_true", "of all", reduction_of_all(form), self);
  }
  const ReductionForm count{.over = ReduceOp::Sum, .keepdim = kNever};
  rules.add("nansum", "sum over dims", reduction({.over = ReduceOp::Sum}), over_dims);
  rules.add("count_nonzero", "sum over a dim", reduction(count), over_dim);
  rules.add("count_nonzero.dim_IntList", "sum over dims", reduction(count), over_dims);

  for (const char* op : {"var.correction", "std.correction"}) {
    rules.add(op, "within dims", reduction_within({.dims = 1, .keepdim = 3}), over_dims);
  }
  for (const char* op : {"var_mean.correction", "std_mean.correction"}) {
    rules.add(op, "within dims", reduction_within({.dims = 1, .keepdim = 3, .results = 2}),
              over_dims);
  }
  for (const char* op : {"linalg_vector_norm", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype"}) {
    rules.add(op, "within dims", reduction_within({.dims = 2, .keepdim = 3}),
              "f32[8, 6], ord=2, dim=[1]");
  }

  rules.add("cumsum", "sum along a dim", with_result_type(2, along_dim(1, "... -> ...")), over_dim);
  for (const char* op : {"cumprod", "logcumsumexp", "_softmax", "_safe_softmax", "_log_softmax"}) {
    rules.add(op, "within a dim", along_dim(1, "~... -> ..."), over_dim);
  }
  for (const char* op : {"cummax", "cummin"}) {
    rules.add(op, "within a dim", along_dim(1, "~... -> ..., ..."), over_dim);
  }
  rules.add("topk", "within a dim", greatest_few, "f32[8, 6], k=2, dim=1");
  rules.add("searchsorted.Tensor", "count over a sequence", searchsorted, "f32[8], f32[6, 5]");
  rules.add("searchsorted.Scalar", "count over a sequence", searchsorted, "f32[8]");
  rules.add("bucketize.Tensor", "count over a sequence", bucketize, "f32[6, 5], f32[8]");
  rules.add("bucketize.Scalar", "count over a sequence", bucketize, "self=1, f32[8]");
  rules.add("isin.Tensor_Tensor", "among some", is_among,
            "f32[8, 6], f32[5], assume_unique=false, invert=false");
  rules.add("isin.Scalar_Tensor", "among some", is_among,
            "element=1, f32[8], assume_unique=false, invert=false");
  rules.add("isin.Tensor_Scalar", "~... -> ...");
  rules.add("sort", "within a dim", along_dim(1, "~... -> ..., ...", ResultLayout::LikeOperands),
            over_dim);
  rules.add("_softmax_backward_data", "within a dim", along_dim(2, "... * ~... -> ..."), gradient);
  rules.add("_log_softmax_backward_data", "within a dim", along_dim(2, "... * ~... -> ..."),
            gradient);
}

}  // namespace tegula::inner::families
