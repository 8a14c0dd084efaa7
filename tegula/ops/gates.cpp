// Gated linear units: one half of a dim weighs the other, so that the dim stays whole.
#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// self [..., 2n, ...] and what has n there.
struct Halves {
  Term self, half;
};

std::optional<Halves> halves(Signature& signature, const Shape& shape, std::int64_t dim) {
  if (shape.empty()) return std::nullopt;
  const std::size_t along = wrapped_dim(dim, shape.size());
  Halves terms;
  terms.self = own_factors(signature, shape);
  signature.is_whole[along] = true;
  terms.half = terms.self;
  terms.half.factors[along] = kNoFactor;
  terms.half.sizes[along] /= 2;
  return terms;
}

// (self, dim) -> the first half, weighed by the second
std::optional<Signature> halved(const OpSchema& schema) {
  Signature signature;
  const auto terms = halves(signature, schema.spec(0).shape(), schema.integer(1));
  if (!terms) return std::nullopt;
  signature.operands = {{terms->self}};
  signature.results = {{terms->half}};
  return signature;
}

// (grad, self, dim) -> of self
std::optional<Signature> halved_backward(const OpSchema& schema) {
  Signature signature;
  const auto terms = halves(signature, schema.spec(1).shape(), schema.integer(2));
  if (!terms || schema.spec(0).shape() != terms->half.sizes) return std::nullopt;
  signature.operands = {{terms->half, true}, {terms->self}};
  signature.results = {{terms->self}};
  return signature;
}

}  // namespace

void add_gates(RuleTable& rules) {
  rules.add("glu", "halves of a dim", halved, "f32[8, 6], dim=1");
  rules.add("glu_backward", "halves of a dim", halved_backward, "f32[8, 3], f32[8, 6], dim=1");
}

}  // namespace tegula::inner::families
