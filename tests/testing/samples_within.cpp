// Samples of what works within dims: Fourier transforms, sorting, linear algebra, whole layers.
#include <string>

#include "tests/testing/samples.h"

namespace tegula {
namespace {

using Samples = std::vector<Sample>;

void add_fourier(Samples& samples) {
  for (const std::string self : {"c128[3, 4, 6]", "c128[3, 4, 6] strides [1, 18, 3]"}) {
    samples.push_back({"_fft_c2c", self + ", [1], 0, true"});
    samples.push_back({"_fft_c2c", self + ", [2, 0], 2, false"});
    samples.push_back({"_fft_c2r", self + ", [2], 0, 10"});
    samples.push_back({"_fft_c2r", self + ", [0, 1], 2, 7"});
    samples.push_back({"_fft_c2c", self + ", [0, 1, 2], 1, true"});
    samples.push_back({"_fft_c2r", self + ", [2, 0, 1], 1, 6"});
  }
  for (const std::string self : {"f64[3, 4, 6]", "f64[3, 4, 6] strides [1, 18, 3]"}) {
    samples.push_back({"_fft_r2c", self + ", [1], 0, true"});
    samples.push_back({"_fft_r2c", self + ", [1], 0, false"});
    samples.push_back({"_fft_r2c", self + ", [2, 0], 2, true"});
    samples.push_back({"_fft_r2c", self + ", [1, 2, 0], 1, true"});
    samples.push_back({"_fft_r2c", self + ", [0, 1], 0, false"});
  }
}

// One vector has no other dim to move the cut to.
void add_vectors(Samples& samples) {
  samples.push_back({"_fft_c2c", "c128[12], [0], 0, true"});
  samples.push_back({"_fft_c2c", "c128[18] strides [2], [0], 2, false"});
  samples.push_back({"_fft_r2c", "f64[24], [0], 1, true"});
  samples.push_back({"_fft_r2c", "f64[24], [0], 0, false"});
  samples.push_back({"_fft_c2r", "c128[13], [0], 2, 24"});
  samples.push_back({"_fft_c2r", "c128[13], [0], 2, 25"});
  samples.push_back({"sort.stable", "f64[14], true, 0, true"});
  samples.push_back({"sort.stable", "f64[14] strides [3], false, 0"});
  samples.push_back({"kthvalue", "f64[14], 5, 0"});
  samples.push_back({"kthvalue", "f64[14], 14, 0, true"});
}

void add_within_dims(Samples& samples) {
  for (const std::string op : {"cummax", "cummin"}) {
    samples.push_back({op, "f64[4, 6, 5], 1"});
    samples.push_back({op, "f64[4, 6] strides [1, 4], 0"});
  }
  samples.push_back({"topk", "f64[4, 6, 5], 3, 1"});
  samples.push_back({"topk", "f64[4, 6] strides [1, 4], 2, 0, false"});
  samples.push_back({"kthvalue", "f64[4, 6, 5], 3, 1"});
  samples.push_back({"kthvalue", "f64[4, 6], 2, 0, true"});
  samples.push_back({"sort.stable", "f64[4, 6, 5], true, 1, true"});
  samples.push_back({"sort.stable", "f64[4, 6] strides [1, 4], false, 0"});
  samples.push_back({"linalg_cross", "f64[4, 3, 5], f64[4, 3, 5], dim=1"});
  samples.push_back({"linalg_cross", "f64[4, 3], f64[1, 3]"});
  samples.push_back({"renorm", "f64[4, 6, 5], 2, 1, 0.5"});
  samples.push_back({"renorm", "f64[4, 6] strides [1, 4], 1, 0, 0.5"});
  samples.push_back({"_weight_norm_interface", "f64[4, 6, 5], f64[4, 1, 1], 0"});
  samples.push_back({"_weight_norm_interface", "f64[4, 6], f64[1, 6], 1"});
  samples.push_back(
      {"_weight_norm_interface_backward", "f64[4, 6], f64[4, 6], f64[4, 1], f64[4, 1] in 1..2, 0"});
  samples.push_back({"bucketize.Tensor", "f64[4, 6], f64[5] in 0.3..0.3"});
  samples.push_back({"bucketize.Tensor", "f64[4, 6] strides [1, 4], f64[5] in 0.3..0.3"});
}

void add_factorizations(Samples& samples) {
  const std::string square = "f64[3, 5, 4, 4]";
  for (const std::string op : {"linalg_inv_ex", "linalg_cholesky_ex", "linalg_ldl_factor_ex",
                               "_linalg_det", "_linalg_slogdet", "linalg_eig", "_linalg_eigvals",
                               "linalg_matrix_exp", "_linalg_eigh", "cholesky_inverse"}) {
    samples.push_back({op, square});
  }
  samples.push_back({"linalg_inv_ex", "f64[3, 4, 4] strides [1, 12, 3]"});
  samples.push_back({"_linalg_eigh", "f64[3, 4, 4], U, false"});
  samples.push_back({"cholesky", "f64[3, 5, 1, 1] in 1..2"});
  samples.push_back({"linalg_pinv.atol_rtol_tensor", "f64[3, 5, 6, 4]"});
  samples.push_back({"linalg_pinv.atol_rtol_tensor", "f64[3, 6, 4], atol=f64[3] in 0.1..0.2"});
  for (const std::string shape : {"f64[3, 6, 4]", "f64[3, 4, 6]"}) {
    for (const std::string mode : {", complete", ", reduced", ", r"}) {
      samples.push_back({"linalg_qr", shape + mode});
    }
    samples.push_back({"_linalg_svd", shape});
    samples.push_back({"_linalg_svd", shape + ", true"});
    samples.push_back({"_linalg_svd", shape + ", false, false"});
    for (const std::string op : {"geqrf", "linalg_lu_factor_ex", "linalg_lu"}) {
      samples.push_back({op, shape});
    }
    samples.push_back({"lu_unpack", shape + ", i32[3, 4] in 1..1"});
  }
  samples.push_back({"lu_unpack", "f64[3, 6, 4], i32[3, 4] in 1..1, true, false"});
  samples.push_back({"lu_unpack", "f64[3, 6, 4], i32[3, 4] in 1..1, false, true"});
}

void add_solutions(Samples& samples) {
  const std::string a = "f64[3, 5, 4, 4] in 1..3";
  const std::string b = "f64[3, 5, 4, 2]";
  const std::string b_right = "f64[3, 5, 2, 4]";
  const std::string pivots = "i32[3, 5, 4] in 1..1";
  samples.push_back({"_linalg_solve_ex", a + ", " + b});
  samples.push_back({"_linalg_solve_ex", a + ", " + b_right + ", left=false"});
  samples.push_back({"_linalg_solve_ex", a + ", f64[3, 5, 4]"});
  samples.push_back({"_linalg_solve_ex", "f64[5, 4, 4], f64[3, 5, 4, 2]"});
  samples.push_back({"_linalg_solve_ex", "f64[3, 4, 4], f64[4, 2]"});
  samples.push_back({"linalg_lstsq", "f64[3, 5, 4, 6], f64[3, 5, 4, 2]"});
  samples.push_back({"linalg_lu_solve", a + ", " + pivots + ", " + b});
  samples.push_back({"linalg_lu_solve", a + ", " + pivots + ", " + b_right + ", left=false"});
  samples.push_back({"linalg_lu_solve", a + ", " + pivots + ", f64[4, 2]"});
  samples.push_back({"linalg_ldl_solve", a + ", " + pivots + ", " + b});
  samples.push_back({"cholesky_solve", b + ", " + a});
  samples.push_back({"cholesky_solve", "f64[4, 2], " + a});
  samples.push_back({"linalg_solve_triangular", a + ", " + b + ", upper=true"});
  samples.push_back({"linalg_solve_triangular", a + ", " + b_right + ", upper=true, left=false"});
  samples.push_back({"linalg_solve_triangular", a + ", f64[4, 2], upper=false"});
  samples.push_back({"triangular_solve", b + ", " + a});
  samples.push_back({"triangular_solve", "f64[4, 2], f64[3, 4, 4] in 1..3"});
  samples.push_back({"linalg_householder_product", "f64[3, 5, 6, 4], f64[3, 5, 4]"});
  samples.push_back({"ormqr", "f64[3, 5, 6, 4], f64[3, 5, 4], f64[3, 5, 6, 2]"});
}

void add_distances(Samples& samples) {
  for (const std::string p : {"1.0", "2.0"}) {
    samples.push_back({"_cdist_forward", "f64[3, 5, 4], f64[3, 6, 4], " + p + ", none"});
    samples.push_back({"_cdist_backward", "f64[3, 5, 6], f64[3, 5, 4], f64[3, 6, 4], " + p +
                                              ", f64[3, 5, 6] in 1..2"});
  }
  samples.push_back({"_cdist_forward", "f64[5, 4], f64[3, 6, 4], 3.0, none"});
  samples.push_back({"_euclidean_dist", "f64[3, 5, 4], f64[3, 6, 4]"});
}

void add_grouped_products(Samples& samples) {
  const std::string by_columns = "bf16[3, 16, 8] strides [128, 1, 16]";
  samples.push_back({"_grouped_mm", "bf16[3, 6, 16], " + by_columns});
  samples.push_back({"_grouped_mm", "bf16[3, 6, 16], bf16[3, 16, 8]"});
  samples.push_back({"_grouped_mm", "bf16[5, 16], " + by_columns + ", i32[3] in 5..5"});
}

void add_other_products(Samples& samples) {
  samples.push_back(
      {"_trilinear", "f64[4, 3], f64[6, 3, 5], f64[4, 5], [1, 3], [0], [1, 2], [2, 3]"});
  samples.push_back({"_trilinear", "f64[4, 3], f64[3, 5], f64[4, 5], [2], [0], [1], [1]"});
}

void add_layers(Samples& samples) {
  const std::string x = "f64[3, 5, 8]";
  const std::string weights = "f64[24, 8], f64[24], f64[8, 8], f64[8]";
  const std::string attention = x + ", " + x + ", " + x + ", 8, 2, " + weights;
  samples.push_back({"_native_multi_head_attention", attention});
  samples.push_back({"_native_multi_head_attention", attention + ", none, true, false"});
  samples.push_back({"_transformer_encoder_layer_fwd",
                     x + ", 8, 2, " + weights +
                         ", true, false, 1e-5, f64[8], f64[8], f64[8], f64[8], f64[12, 8], "
                         "f64[12], f64[8, 12], f64[8]"});
}

}  // namespace

void add_samples_within(std::vector<Sample>& samples) {
  add_fourier(samples);
  add_vectors(samples);
  add_within_dims(samples);
  add_factorizations(samples);
  add_solutions(samples);
  add_distances(samples);
  add_grouped_products(samples);
  add_other_products(samples);
  add_layers(samples);
}

}  // namespace tegula
