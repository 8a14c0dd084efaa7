// Products of matrices and vectors: linear in each factor.
#include <algorithm>

#include "tegula/ops/families.h"

namespace tegula::inner::families {
namespace {

// libtorch does not broadcast the summand if the matrix has no elements.
std::optional<Signature> matrix_times_vector_plus(const OpSchema& schema) {
  static constexpr RuleText text = "m + mk * k -> m";
  std::optional<Signature> signature = signature_of(text.form(), schema);
  if (signature) signature->needs_elements = true;
  return signature;
}

// (self, mat2 [g, k, n], offs?, bias?, out_dtype): a matrix of each group. Either self is [g, m,
// k], or its rows [t, k] belong to the groups that `offs` says. libtorch wants rows of memory at
// distances of 16 bytes, so the dim that is innermost in memory stays whole.
std::optional<Signature> grouped_product(const OpSchema& schema) {
  static constexpr RuleText with_groups = "~gmk!, ~gk!n -> gmn";
  static constexpr RuleText with_rows = "~t!k!, ~g!k!n, ~g! -> tn";
  constexpr std::size_t kOffsets = 2, kBias = 3;
  const bool has_offsets = !schema.is_none(kOffsets);
  const std::int64_t dims = has_offsets ? 2 : 3;
  if (!schema.is_none(kBias) || schema.spec(0).ndim() != dims || schema.spec(1).ndim() != 3) {
    return std::nullopt;
  }
  std::optional<Signature> signature =
      signature_of((has_offsets ? with_rows : with_groups).form(), schema);
  if (!signature) return std::nullopt;
  signature->needs_elements = true;
  const auto keep_whole = [&](std::size_t operand, std::size_t dim) {
    const Factor factor = signature->operands[operand].term.factors[dim];
    if (factor != kNoFactor) signature->is_whole[static_cast<std::size_t>(factor)] = true;
  };
  const auto lies_inside = [&](std::size_t operand, std::size_t dim, std::size_t other) {
    const Shape& stride = schema.spec(operand).meta().stride();
    return stride[dim] <= stride[other];
  };
  const auto last = static_cast<std::size_t>(dims - 1);
  if (lies_inside(0, last - 1, last)) keep_whole(0, last - 1);
  if (lies_inside(1, 2, 1)) keep_whole(1, 2);
  return signature;
}

// (i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim): each operand lacks the dims that its
// list names; the product of all is summed over some.
std::optional<Signature> product_of_three(const OpSchema& schema) {
  constexpr std::size_t kOperands = 3, kExpanded = 3, kSummed = 6;
  const auto names = [&](std::size_t list, std::size_t dim) {
    const Ints& dims = schema.ints(list);
    return std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(dim)) != dims.end();
  };
  const std::size_t dims = schema.spec(0).shape().size() + schema.ints(kExpanded).size();
  Signature signature;
  signature.operands.resize(kOperands);
  Result result;
  std::vector<std::size_t> next(kOperands, 0);
  for (std::size_t dim = 0; dim < dims; ++dim) {
    std::int64_t size = 1;
    for (std::size_t k = 0; k < kOperands; ++k) {
      if (names(kExpanded + k, dim)) continue;
      const Shape& shape = schema.spec(k).shape();
      if (next[k] >= shape.size()) return std::nullopt;
      if (shape[next[k]] != 1) size = shape[next[k]];
    }
    const Factor factor = signature.add_factor(size);
    for (std::size_t k = 0; k < kOperands; ++k) {
      if (names(kExpanded + k, dim)) continue;
      const std::int64_t own = schema.spec(k).shape()[next[k]++];
      if (own != size && own != 1) return std::nullopt;
      signature.operands[k].term.factors.push_back(own == size ? factor : kNoFactor);
      signature.operands[k].term.sizes.push_back(own);
    }
    if (names(kSummed, dim)) continue;
    result.term.factors.push_back(factor);
    result.term.sizes.push_back(size);
  }
  for (std::size_t k = 0; k < kOperands; ++k) {
    if (next[k] != schema.spec(k).shape().size()) return std::nullopt;
    signature.operands[k].is_linear = true;
  }
  signature.results = {std::move(result)};
  return signature;
}

}  // namespace

void add_products(RuleTable& rules) {
  rules.add("mm", "mk * kn -> mn");
  rules.add("bmm", "bmk * bkn -> bmn");
  rules.add("mv", "mk * k -> m");
  rules.add_all("dot vdot", "k * k -> ()");
  rules.add("addmm", "mn + mk * kn -> mn");
  rules.add("_addmm_activation", "~mn, ~mk!, ~k!n -> mn");
  rules.add("addmv", "m + mk * k -> m", matrix_times_vector_plus, "f32[8], f32[8, 6], f32[6]");
  rules.add("addr", "mn + m * n -> mn");
  rules.add("addbmm", "mn + bmk * bkn -> mn");
  rules.add("baddbmm", "bmn + bmk * bkn -> bmn");
  rules.add("_trilinear", "ni * oij * nj -> no", product_of_three,
            "f32[8, 4], f32[6, 4, 5], f32[8, 5], expand1=[1, 3], expand2=[0], expand3=[1, 2], "
            "sumdim=[2, 3]");
  rules.add("_grouped_mm", "gmk, gkn -> gmn", grouped_product, "bf16[8, 4, 16], bf16[8, 16, 32]");
}

}  // namespace tegula::inner::families
