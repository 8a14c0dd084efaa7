// Products of matrices and vectors: linear in each factor.
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
  rules.add("_grouped_mm", "gmk, gkn -> gmn", grouped_product, "bf16[8, 4, 16], bf16[8, 16, 32]");
}

}  // namespace tegula::inner::families
