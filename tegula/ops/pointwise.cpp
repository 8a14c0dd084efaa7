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

// A floating type with infinities: what is too large becomes one. Types of a byte have none.
bool rounds_in_order(DType dtype) { return is_floating(dtype) && size_of(dtype) > 1; }

// Whether every number of one floating type is one of the other.
bool holds_all_of(DType to, DType from) {
  return rounds_in_order(from) && rounds_in_order(to) &&
         (to == from || size_of(to) > size_of(from));
}

// (self, dtype, layout, device, pin_memory, non_blocking, memory_format): summands that would be
// rounded are added up first; rounding keeps the order of numbers.
std::optional<Signature> conversion(const OpSchema& schema) {
  for (const std::size_t option : {2, 3, 4, 6}) {
    if (!schema.is_none(option)) return std::nullopt;
  }
  const DType from = schema.spec(0).meta().dtype();
  const DType to = schema.is_none(1) ? from : static_cast<DType>(schema.integer(1));
  Signature signature;
  const Term self = own_factors(signature, schema.spec(0).shape());
  signature.operands = {{.term = self, .is_linear = holds_all_of(to, from)}};
  signature.results = {{self, ResultLayout::LikeOperands}};
  if (rounds_in_order(from) && rounds_in_order(to)) signature.trait = Trait::Increasing;
  return signature;
}

// (self, scale [c], zero_point [c], axis, ...) -> output, mask
std::optional<Signature> quantized_by_channel(const OpSchema& schema) {
  const Shape& shape = schema.spec(0).shape();
  if (shape.empty()) return std::nullopt;
  const std::size_t axis = wrapped_dim(schema.integer(3), shape.size());
  const Shape channels{shape[axis]};
  if (schema.spec(1).shape() != channels || schema.spec(2).shape() != channels) return std::nullopt;
  Signature signature;
  signature.needs_elements = true;  // it looks for the least zero point
  const Term self = own_factors(signature, shape);
  const Term channel{{self.factors[axis]}, channels};
  signature.operands = {{self}, {channel}, {channel}};
  signature.results = {{self, ResultLayout::LikeFirst}, {self, ResultLayout::LikeFirst}};
  return signature;
}

// Of a number or of its degree, a tensor or a number each.
void add_polynomials(RuleTable& rules) {
  for (const std::string name :
       {"chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
        "chebyshev_polynomial_w", "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
        "laguerre_polynomial_l", "legendre_polynomial_p"}) {
    rules.add("special_" + name, "~..., ~... -> ...");
    rules.add("special_" + name + ".x_scalar", "~... -> ...");
    rules.add("special_" + name + ".n_scalar", "~... -> ...");
  }
}

}  // namespace

void add_pointwise(RuleTable& rules) {
  rules.add_all("zero mul.Scalar div.Scalar", "... -> ...");
  rules.add_all("deg2rad rad2deg", "... -> ...", Trait::Increasing);
  rules.add("neg", "... -> ...", Trait::Decreasing);
  rules.add_all("add.Tensor sub.Tensor rsub.Tensor lerp.Scalar", "... + ... -> ...");
  rules.add("mul.Tensor", "... * ... -> ...");
  rules.add_all("div.Tensor ldexp.Tensor", "... * ~... -> ...");
  rules.add("lerp.Tensor", "... + ... * ~... -> ...");
  rules.add("addcmul", "... + ... * ... -> ...");
  rules.add("addcdiv", "... + ... * ~... -> ...");
  rules.add("where.self", "~... * ... + ... -> ...");
  rules.add("copy", "~... * ... -> ...", copy, "f32[8, 6], f32[8, 6]");
  rules.add("_to_copy", "another element type", conversion,
            "f32[8, 6], dtype=none, layout=none, device=none, pin_memory=none, non_blocking=false, "
            "memory_format=none");
  rules.add("fake_quantize_per_channel_affine_cachemask", "..., c, c -> ..., ...",
            quantized_by_channel, "f32[8, 6], f32[6], i32[6], axis=1, quant_min=0, quant_max=255");

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
      "copysign.Scalar rsub.Scalar _conj_physical conj_physical "
      "bitwise_and.Scalar_Tensor bitwise_or.Scalar_Tensor bitwise_xor.Scalar_Tensor "
      "bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor "
      "bitwise_right_shift.Tensor_Scalar bitwise_right_shift.Scalar_Tensor "
      "__lshift__.Scalar __rshift__.Scalar mvlgamma "
      "special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 "
      "special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 "
      "special_modified_bessel_k1 special_scaled_modified_bessel_k0 "
      "special_scaled_modified_bessel_k1 special_spherical_bessel_j0 "
      "special_xlog1py.other_scalar special_xlog1py.self_scalar "
      "special_zeta.other_scalar special_zeta.self_scalar",
      "~... -> ...");

  rules.add_all(
      "pow.Tensor_Tensor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor "
      "ge.Tensor logical_and logical_or logical_xor bitwise_and.Tensor "
      "bitwise_or.Tensor bitwise_xor.Tensor fmax fmin fmod.Tensor "
      "remainder.Tensor floor_divide div.Tensor_mode atan2 hypot xlogy.Tensor "
      "special_xlog1py nextafter heaviside gcd lcm "
      "masked_fill.Scalar _prelu_kernel igamma igammac complex polar copysign.Tensor "
      "bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor "
      "__rshift__.Tensor special_zeta",
      "~..., ~... -> ...");
  rules.add_all("maximum minimum clamp_min.Tensor clamp_max.Tensor logaddexp logaddexp2",
                "~..., ~... -> ...", Trait::Increasing);
  rules.add("clamp.Tensor", "~..., ~..., ~... -> ...", Trait::Increasing);
  rules.add("masked_fill.Tensor", "~..., ~..., ~... -> ...");
  rules.add("fill.Tensor", "~..., ~() -> ...");
  rules.add_all("frexp.Tensor log_sigmoid_forward fake_quantize_per_tensor_affine_cachemask",
                "~... -> ..., ...");
  rules.add("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            "~..., ~1, ~1, ~1 -> ..., ...");
  add_polynomials(rules);
}

}  // namespace tegula::inner::families
