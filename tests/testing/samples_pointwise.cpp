// Pointwise ops beyond the common ones, and what is computed element by element beside them.
#include "tests/testing/samples.h"

#include <string>

namespace tegula {
namespace {

using Names = std::vector<std::string>;

void add_special_functions(std::vector<Sample>& samples) {
  const std::string x = "f64[4, 6] in 0.5..3";
  add(samples,
      {"special_airy_ai", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
       "special_bessel_y1", "special_modified_bessel_i0", "special_modified_bessel_i1",
       "special_modified_bessel_k0", "special_modified_bessel_k1",
       "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
       "special_spherical_bessel_j0"},
      {x});
  for (const std::string name :
       {"chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
        "chebyshev_polynomial_w", "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
        "laguerre_polynomial_l", "legendre_polynomial_p"}) {
    samples.push_back({"special_" + name, "f64[4, 6] in 0.1..0.9, i64[4, 1] in 3..5"});
    samples.push_back({"special_" + name + ".x_scalar", "0.6, i64[4, 6] in 3..5"});
    samples.push_back({"special_" + name + ".n_scalar", "f64[4, 6] in 0.1..0.9, 4"});
  }
  samples.push_back({"special_xlog1py.other_scalar", x + ", 1.7"});
  samples.push_back({"special_xlog1py.self_scalar", "1.7, " + x});
  samples.push_back({"special_zeta", "f64[4, 6] in 1.5..3, f64[6] in 0.5..2"});
  samples.push_back({"special_zeta.other_scalar", "f64[4, 6] in 1.5..3, 1.7"});
  samples.push_back({"special_zeta.self_scalar", "1.7, " + x});
  samples.push_back({"mvlgamma", "f64[4, 6] in 2..5, 3"});
}

void add_bits(std::vector<Sample>& samples) {
  const std::string bits = "i64[4, 6] in 1..9";
  for (const std::string op : {"bitwise_left_shift", "bitwise_right_shift"}) {
    samples.push_back({op + ".Tensor", bits + ", i64[6] in 1..3"});
    samples.push_back({op + ".Tensor_Scalar", bits + ", 2"});
    samples.push_back({op + ".Scalar_Tensor", "5, i64[4, 6] in 1..3"});
  }
  for (const std::string op : {"__lshift__", "__rshift__"}) {
    samples.push_back({op + ".Tensor", bits + ", i64[6] in 1..3"});
    samples.push_back({op + ".Scalar", bits + ", 2"});
  }
  add(samples,
      {"bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor", "bitwise_xor.Scalar_Tensor"},
      {"5, " + bits});
}

void add_conversions(std::vector<Sample>& samples) {
  add(samples, {"_to_copy"},
      {"f64[4, 6]", "f32[4, 6], dtype=f64", "f64[4, 6], dtype=f32", "f64[4, 6], dtype=i64",
       "i64[4, 6], dtype=f64", "f64[4, 6] strides [1, 4], dtype=f32"});
  const std::string image = "f32[4, 6]";
  samples.push_back({"fake_quantize_per_tensor_affine_cachemask", image + ", 0.1, 3, 0, 15"});
  samples.push_back({"_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
                     image + ", f32[1] in 0.1..0.2, i32[1] in 3..4, i64[1] in 1..1, 0, 15"});
  samples.push_back({"fake_quantize_per_channel_affine_cachemask",
                     image + ", f32[6] in 0.1..0.2, i32[6] in 3..4, 1, 0, 15"});
}

void add_others(std::vector<Sample>& samples) {
  const std::string x = "f64[4, 6]";
  add(samples, {"deg2rad", "rad2deg", "frexp.Tensor", "log_sigmoid_forward"}, {x});
  add(samples, {"clamp_min.Tensor", "clamp_max.Tensor"},
      {"f64[4, 6], f64[4, 6]", "f64[3, 4, 6], f64[4, 1]"});
  samples.push_back({"ldexp.Tensor", "f64[4, 6], i64[6] in 1..4"});
  samples.push_back({"fill.Tensor", x + ", f64[]"});
  samples.push_back({"log_sigmoid_backward", "f64[4, 6], f64[4, 6], f64[4, 6] in 0.1..0.9"});
  samples.push_back(
      {"rrelu_with_noise_backward", "f64[4, 6], f64[4, 6], f64[4, 6], 0.1, 0.3, true, false"});
  samples.push_back({"_prelu_kernel_backward", "f64[4, 6], f64[4, 6], f64[1, 6]"});
  samples.push_back({"glu", "f64[4, 6, 5], 1"});
  samples.push_back({"glu", "f64[4, 6], -1"});
  samples.push_back({"glu_backward", "f64[4, 3, 5], f64[4, 6, 5], 1"});
  for (const std::string reduction : {"0", "1", "2"}) {
    const std::string pair = "f64[4, 6] in 0.1..0.9, f64[4, 6] in 0..1";
    const std::string grad = reduction == "0" ? "f64[4, 6], " : "f64[], ";
    for (const std::string weight : {"none", "f64[4, 6]"}) {
      const std::string rest = pair + ", " + weight + ", " + reduction;
      samples.push_back({"binary_cross_entropy", rest});
      samples.push_back({"binary_cross_entropy_with_logits",
                         pair + ", " + weight + ", f64[6] in 0.5..2, " + reduction});
      samples.push_back({"binary_cross_entropy_backward", grad + rest});
    }
  }
}

}  // namespace

std::vector<Sample> pointwise_samples() {
  std::vector<Sample> samples;
  add_special_functions(samples);
  add_bits(samples);
  add_conversions(samples);
  add_others(samples);
  return samples;
}

}  // namespace tegula
