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

}  // namespace

void add_products(RuleTable& rules) {
  rules.add("mm", "mk * kn -> mn");
  rules.add("bmm", "bmk * bkn -> bmn");
  rules.add("mv", "mk * k -> m");
  rules.add_all("dot vdot", "k * k -> ()");
  rules.add("addmm", "mn + mk * kn -> mn");
  rules.add("addmv", "m + mk * k -> m", matrix_times_vector_plus, "f32[8], f32[8, 6], f32[6]");
  rules.add("addr", "mn + m * n -> mn");
  rules.add("addbmm", "mn + bmk * bkn -> mn");
  rules.add("baddbmm", "bmn + bmk * bkn -> bmn");
}

}  // namespace tegula::inner::families
