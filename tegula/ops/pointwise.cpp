// Pointwise ops: every dim may be cut.
//
// A trait is claimed only where it holds for all numbers: sqrt and log are increasing, but a part
// that is negative gives NaN although the greatest part is not; rsub.Scalar falls or rises by the
// sign of its alpha.
#include "tegula/ops/families.h"

#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// Linear in what is copied, unless the conversion drops fractions.
std::optional<Signature> copy(const OpSchema& schema) {
  static constexpr RuleText text = "~... * ... -> ...";
  std::optional<Signature> signature = signature_of(text.form(), schema);
  if (signature && signature->operands.size() == 2) {
    signature->operands[1].is_linear =
        converts_linearly(schema.spec(1).meta().dtype(), schema.spec(0).meta().dtype());
  }
  return signature;
}

}  // namespace

void add_pointwise(RuleTable& rules) {
  rules.add_all("zero mul.Scalar div.Scalar", "... -> ...");
  rules.add("neg", "... -> ...", Trait::Decreasing);
  rules.add_all("add.Tensor sub.Tensor rsub.Tensor lerp.Scalar", "... + ... -> ...");
  rules.add("mul.Tensor", "... * ... -> ...");
  rules.add("div.Tensor", "... * ~... -> ...");
  rules.add("lerp.Tensor", "... + ... * ~... -> ...");
  rules.add("addcmul", "... + ... * ... -> ...");
  rules.add("addcdiv", "... + ... * ~... -> ...");
  rules.add("where.self", "~... * ... + ... -> ...");
  rules.add("copy", "~... * ... -> ...", copy, "f32[8, 6], f32[8, 6]");

  rules.add_all(
      "add.Scalar sub.Scalar exp exp2 expm1 relu sigmoid tanh erf atan asinh sinh "
      "floor ceil trunc round sign hardtanh relu6 hardsigmoid softplus clamp "
      "clamp_min clamp_max",
      "~... -> ...", Trait::Increasing);
  rules.add("erfc", "~... -> ...", Trait::Decreasing);

  rules.add_all(
      "abs sqrt rsqrt reciprocal log log2 log10 log1p sin cos tan asin acos cosh "
      "acosh atanh sinc sgn angle frac lgamma digamma polygamma erfinv i0 "
      "special_i0e special_i1 special_i1e special_entr special_erfcx special_ndtri "
      "special_log_ndtr isnan isinf isposinf isneginf signbit logical_not "
      "bitwise_not gelu silu mish elu celu leaky_relu hardswish hardshrink "
      "softshrink threshold logit nan_to_num fill.Scalar round.decimals "
      "pow.Tensor_Scalar pow.Scalar remainder.Scalar remainder.Scalar_Tensor "
      "fmod.Scalar floor_divide.Scalar div.Scalar_mode xlogy.Scalar_Other "
      "xlogy.Scalar_Self eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar "
      "ge.Scalar bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar "
      "copysign.Scalar rsub.Scalar _conj_physical conj_physical",
      "~... -> ...");

  rules.add_all(
      "pow.Tensor_Tensor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor "
      "ge.Tensor logical_and logical_or logical_xor bitwise_and.Tensor "
      "bitwise_or.Tensor bitwise_xor.Tensor maximum minimum fmax fmin fmod.Tensor "
      "remainder.Tensor floor_divide div.Tensor_mode atan2 hypot xlogy.Tensor "
      "special_xlog1py nextafter heaviside logaddexp logaddexp2 gcd lcm "
      "masked_fill.Scalar _prelu_kernel igamma igammac complex polar copysign.Tensor",
      "~..., ~... -> ...");
  rules.add_all("clamp.Tensor masked_fill.Tensor", "~..., ~..., ~... -> ...");
}

}  // namespace tegula::inner::families
