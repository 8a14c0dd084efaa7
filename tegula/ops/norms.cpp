// Normalization over the last dims: what stands before them may be cut; gradients of weights, which
// lack those dims, are sums.
#include <algorithm>

#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// Factors of [before..., normalized...]; the normalized ones stay whole.
struct Dims {
  Term all, before, normalized;
};

Dims number_dims(Signature& signature, const Shape& shape, std::size_t normalized) {
  Dims dims;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const bool is_before = dim + normalized < shape.size();
    const Factor factor = signature.add_factor(shape[dim]);
    signature.is_whole[static_cast<std::size_t>(factor)] = !is_before;
    dims.all.factors.push_back(factor);
    dims.all.sizes.push_back(shape[dim]);
    dims.before.factors.push_back(is_before ? factor : kNoFactor);
    dims.before.sizes.push_back(is_before ? shape[dim] : 1);
    if (is_before) continue;
    dims.normalized.factors.push_back(factor);
    dims.normalized.sizes.push_back(shape[dim]);
  }
  return dims;
}

// What is normalized are the last dims of self, and weights have just these.
bool fits(const OpSchema& schema, std::size_t self, const std::vector<std::size_t>& weights) {
  const Shape& shape = schema.spec(self).shape();
  const Ints& normalized = schema.ints(self + 1);
  if (normalized.empty() || shape.size() < normalized.size()) return false;
  if (!std::equal(normalized.rbegin(), normalized.rend(), shape.rbegin())) return false;
  return std::all_of(weights.begin(), weights.end(), [&](std::size_t argument) {
    return has_shape_if_given(schema, argument, normalized);
  });
}

// (input, normalized_shape, weight?, bias?, eps) -> output, mean, rstd
std::optional<Signature> layer_norm(const OpSchema& schema) {
  if (!fits(schema, 0, {2, 3})) return std::nullopt;
  Signature signature;
  const Dims dims = number_dims(signature, schema.spec(0).shape(), schema.ints(1).size());
  signature.operands.push_back({dims.all});
  add_optional_operand(signature, schema, 2, dims.normalized);
  add_optional_operand(signature, schema, 3, dims.normalized);
  signature.results = {{dims.all}, {dims.before}, {dims.before}};
  return signature;
}

// (grad, input, normalized_shape, mean, rstd, weight?, bias?, mask) -> of input, weight, bias
std::optional<Signature> layer_norm_backward(const OpSchema& schema) {
  if (!fits(schema, 1, {5, 6}) || schema.spec(0).shape() != schema.spec(1).shape()) {
    return std::nullopt;
  }
  Signature signature;
  const Dims dims = number_dims(signature, schema.spec(1).shape(), schema.ints(2).size());
  signature.operands = {{dims.all}, {dims.all}, {dims.before}, {dims.before}};
  add_optional_operand(signature, schema, 5, dims.normalized);
  add_optional_operand(signature, schema, 6, dims.normalized);
  signature.results = {{dims.all}, {dims.normalized}, {dims.normalized}};
  return signature;
}

// (input, normalized_shape, weight?, eps) -> output, rstd
std::optional<Signature> rms_norm(const OpSchema& schema) {
  if (!fits(schema, 0, {2})) return std::nullopt;
  Signature signature;
  const Dims dims = number_dims(signature, schema.spec(0).shape(), schema.ints(1).size());
  signature.operands.push_back({dims.all});
  add_optional_operand(signature, schema, 2, dims.normalized);
  signature.results = {{dims.all}, {dims.before}};
  return signature;
}

// (grad, input, normalized_shape, rstd, weight?, mask) -> of input, weight
std::optional<Signature> rms_norm_backward(const OpSchema& schema) {
  if (!fits(schema, 1, {4}) || schema.spec(0).shape() != schema.spec(1).shape()) {
    return std::nullopt;
  }
  Signature signature;
  const Dims dims = number_dims(signature, schema.spec(1).shape(), schema.ints(2).size());
  signature.operands = {{dims.all}, {dims.all}, {dims.before}};
  add_optional_operand(signature, schema, 4, dims.normalized);
  signature.results = {{dims.all}, {dims.normalized}};
  return signature;
}

}  // namespace

void add_norms(RuleTable& rules) {
  rules.add("native_layer_norm", "over the last dims", layer_norm,
            "f32[8, 4, 6], normalized_shape=[6], weight=f32[6], bias=f32[6]");
  rules.add("native_layer_norm_backward", "over the last dims", layer_norm_backward,
            "f32[8, 4, 6], f32[8, 4, 6], normalized_shape=[6], mean=f32[8, 4, 1], "
            "rstd=f32[8, 4, 1], weight=f32[6], bias=f32[6]");
  rules.add("_fused_rms_norm", "over the last dims", rms_norm,
            "f32[8, 4, 6], normalized_shape=[6], weight=f32[6]");
  rules.add("_fused_rms_norm_backward", "over the last dims", rms_norm_backward,
            "f32[8, 4, 6], f32[8, 4, 6], normalized_shape=[6], rstd=f32[8, 4, 1], weight=f32[6]");
}

}  // namespace tegula::inner::families
