// Dims of one call have different sizes, so that a dim taken for another one shows.
#include "tests/testing/samples.h"

#include <string>

#include "tests/testing/samples_indexing.h"

namespace tegula {

void add(std::vector<Sample>& samples, const std::vector<std::string>& ops,
         const std::vector<std::string>& texts) {
  for (const std::string& op : ops) {
    for (const std::string& text : texts) samples.push_back({op, text});
  }
}

namespace {

using Samples = std::vector<Sample>;
using Names = std::vector<std::string>;

void add_unary(Samples& samples) {
  const std::string x = "f64[4, 6]";
  add(samples,
      {"zero",
       "neg",
       "exp",
       "exp2",
       "expm1",
       "relu",
       "sigmoid",
       "tanh",
       "erf",
       "erfc",
       "atan",
       "asinh",
       "sinh",
       "floor",
       "ceil",
       "trunc",
       "round",
       "sign",
       "hardtanh",
       "relu6",
       "hardsigmoid",
       "softplus",
       "abs",
       "sin",
       "cos",
       "tan",
       "cosh",
       "sinc",
       "sgn",
       "angle",
       "frac",
       "i0",
       "special_i0e",
       "special_i1",
       "special_i1e",
       "isnan",
       "isinf",
       "isposinf",
       "isneginf",
       "signbit",
       "gelu",
       "silu",
       "mish",
       "elu",
       "celu",
       "leaky_relu",
       "hardswish",
       "hardshrink",
       "softshrink",
       "nan_to_num",
       "_conj_physical",
       "conj_physical",
       "special_erfcx",
       "special_log_ndtr"},
      {x});
  add(samples,
      {"sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p", "lgamma", "digamma",
       "special_entr"},
      {x + " in 0.5..3"});
  add(samples, {"asin", "acos", "atanh", "erfinv"}, {x + " in -0.9..0.9"});
  add(samples, {"special_ndtri", "logit"}, {x + " in 0.1..0.9"});
  samples.push_back({"acosh", x + " in 1.1..3"});
  samples.push_back({"gelu", x + ", approximate=tanh"});
  samples.push_back({"exp", "f64[3, 5, 4] strides [20, 1, 5]"});
  samples.push_back({"conj_physical", "c128[4, 6]"});
  samples.push_back({"bitwise_not", "i64[4, 6]"});
  samples.push_back({"logical_not", "bool[4, 6]"});
  samples.push_back({"polygamma", "1, " + x + " in 0.5..3"});
}

void add_with_numbers(Samples& samples) {
  const std::string x = "f64[4, 6]";
  const std::string i = "i64[4, 6]";
  add(samples,
      {"mul.Scalar", "div.Scalar", "add.Scalar", "sub.Scalar", "rsub.Scalar", "fill.Scalar",
       "remainder.Scalar", "fmod.Scalar", "floor_divide.Scalar", "xlogy.Scalar_Other", "lt.Scalar",
       "le.Scalar", "gt.Scalar", "ge.Scalar", "copysign.Scalar", "clamp_min", "clamp_max"},
      {x + ", 0.7"});
  samples.push_back({"add.Scalar", x + ", 0.7, 3"});
  samples.push_back({"rsub.Scalar", x + ", 0.7, 3"});
  samples.push_back({"add.Scalar", "f64[], 0.7"});
  samples.push_back({"div.Scalar_mode", x + ", 0.7, floor"});
  samples.push_back({"div.Scalar_mode", x + ", 0.7, none"});
  samples.push_back({"round.decimals", x + ", decimals=1"});
  samples.push_back({"clamp", x + ", -0.5, 0.7"});
  samples.push_back({"clamp", x + ", none, 0.7"});
  samples.push_back({"threshold", x + ", 0.1, 0.7"});
  samples.push_back({"pow.Tensor_Scalar", x + ", 3"});
  samples.push_back({"pow.Scalar", "1.7, " + x});
  samples.push_back({"remainder.Scalar_Tensor", "5.3, " + x});
  samples.push_back({"xlogy.Scalar_Self", "1.7, " + x + " in 0.5..3"});
  add(samples,
      {"bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar", "eq.Scalar", "ne.Scalar"},
      {i + ", 3"});
}

void add_binary(Samples& samples) {
  const Names pairs = {"f64[4, 6], f64[4, 6]", "f64[3, 4, 6], f64[4, 1]"};
  add(samples, {"add.Tensor", "mul.Tensor", "div.Tensor"},
      {pairs[0], pairs[1], "f64[4, 6] strides [1, 4], f64[4, 6]", "f64[6], f64[]",
       "f64[4, 1], f64[1, 6]", "f64[4, 6], i64[4, 6] in 1..4"});
  samples.push_back({"add.Tensor", "f64[4, 6], f64[4, 6], alpha=3"});
  add(samples, {"sub.Tensor", "rsub.Tensor", "copysign.Tensor",  "lt.Tensor",    "le.Tensor",
                "gt.Tensor",  "ge.Tensor",   "maximum",          "minimum",      "fmax",
                "fmin",       "fmod.Tensor", "remainder.Tensor", "floor_divide", "atan2",
                "hypot",      "nextafter",   "heaviside",        "logaddexp",    "logaddexp2"},
      pairs);
  samples.push_back({"copy", pairs[0]});
  samples.push_back({"copy", "f64[4, 6], f32[1, 6]"});
  samples.push_back({"lerp.Scalar", pairs[0] + ", 0.3"});
  samples.push_back({"div.Tensor_mode", pairs[0] + ", rounding_mode=trunc"});
  samples.push_back({"pow.Tensor_Tensor", "f64[4, 6] in 0.5..2, f64[6]"});
  add(samples, {"xlogy.Tensor", "special_xlog1py", "igamma", "igammac"},
      {"f64[4, 6] in 0.5..2, f64[4, 6] in 0.5..2"});
  add(samples,
      {"bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", "gcd", "lcm", "eq.Tensor",
       "ne.Tensor"},
      {"i64[4, 6] in 1..9, i64[6] in 1..9"});
  samples.push_back({"bitwise_and.Tensor", "bool[4, 6], bool[4, 6]"});
  samples.push_back({"masked_fill.Scalar", "f64[4, 6], bool[4, 1], 0.7"});
  samples.push_back({"_prelu_kernel", "f64[4, 6], f64[1, 6]"});
  add(samples, {"complex", "polar"}, {"f64[4, 6], f64[4, 6]"});
  add(samples, {"logical_and", "logical_or", "logical_xor"}, {"bool[4, 6], bool[6]"});
}

void add_ternary(Samples& samples) {
  const std::string three = "f64[4, 6], f64[4, 6], f64[4, 6]";
  add(samples, {"lerp.Tensor", "addcmul", "addcdiv", "clamp.Tensor"},
      {three, "f64[4, 6], f64[6], f64[4, 1]"});
  samples.push_back({"addcmul", three + ", value=2.5"});
  samples.push_back({"clamp.Tensor", "f64[4, 6], none, f64[4, 6]"});
  samples.push_back({"clamp.Tensor", "f64[4, 6], f64[6]"});
  samples.push_back({"where.self", "bool[4, 6], f64[4, 6], f64[4, 6]"});
  samples.push_back({"where.self", "bool[4, 1], f64[4, 6], f64[]"});
  samples.push_back({"masked_fill.Tensor", "f64[4, 6], bool[4, 6], f64[]"});
}

void add_pointwise_backward(Samples& samples) {
  const std::string two = "f64[4, 6], f64[4, 6]";
  add(samples,
      {"gelu_backward", "silu_backward", "mish_backward", "tanh_backward", "sigmoid_backward",
       "hardswish_backward", "hardsigmoid_backward"},
      {two});
  samples.push_back({"gelu_backward", two + ", approximate=tanh"});
  samples.push_back({"threshold_backward", two + ", 0.1"});
  samples.push_back({"softplus_backward", two + ", 1.5, 20"});
  samples.push_back({"hardtanh_backward", two + ", -0.5, 0.5"});
  add(samples, {"hardshrink_backward", "softshrink_backward"}, {two + ", 0.5"});
  samples.push_back({"elu_backward", "f64[4, 6], 1.5, 1, 1, false, f64[4, 6]"});
  samples.push_back({"leaky_relu_backward", two + ", 0.2, false"});
  samples.push_back({"logit_backward", "f64[4, 6], f64[4, 6] in 0.1..0.9"});
  samples.push_back({"native_dropout_backward", "f64[4, 6], bool[4, 6], 1.5"});
}

void add_products(Samples& samples) {
  add(samples, {"mm"},
      {"f64[4, 6], f64[6, 5]", "f64[4, 6] strides [1, 4], f64[6, 5] strides [1, 6]",
       "f64[1, 6], f64[6, 5]"});
  samples.push_back({"bmm", "f64[3, 4, 6], f64[3, 6, 5]"});
  samples.push_back({"mv", "f64[4, 6], f64[6]"});
  add(samples, {"dot", "vdot"}, {"f64[6], f64[6]"});
  samples.push_back({"vdot", "c128[6], c128[6]"});
  add(samples, {"_addmm_activation"},
      {"f64[6], f64[4, 5], f64[5, 6]", "f64[4, 6], f64[4, 5], f64[5, 6]"});
  add(samples, {"addmm"},
      {"f64[4, 5], f64[4, 6], f64[6, 5]", "f64[5], f64[4, 6], f64[6, 5]",
       "f64[4, 1], f64[4, 6], f64[6, 5], beta=0.5, alpha=2", "f64[], f64[4, 6], f64[6, 5]"});
  samples.push_back({"addmv", "f64[4], f64[4, 6], f64[6]"});
  samples.push_back({"addr", "f64[4, 6], f64[4], f64[6], beta=0.5"});
  samples.push_back({"addbmm", "f64[4, 5], f64[3, 4, 6], f64[3, 6, 5]"});
  samples.push_back({"baddbmm", "f64[3, 4, 5], f64[3, 4, 6], f64[3, 6, 5]"});
  samples.push_back({"baddbmm", "f64[5], f64[3, 4, 6], f64[3, 6, 5]"});
}

void add_reductions(Samples& samples) {
  add(samples, {"sum", "prod", "max", "min"}, {"f64[4, 6]", "f64[]"});
  samples.push_back({"sum", "i64[4, 6]"});
  add(samples, {"sum.dim_IntList", "nansum"},
      {"f64[4, 6, 5], [1]", "f64[4, 6, 5], [-1, 0], true", "f64[4, 6], none"});
  samples.push_back({"sum.dim_IntList", "f64[4, 6], [1], dtype=f32"});
  add(samples, {"mean"}, {"f64[4, 6]", "f64[]", "f64[0, 6]", "f64[4, 6], dtype=f32"});
  add(samples, {"mean.dim"},
      {"f64[4, 6, 5], [1]", "f64[4, 6, 5], [-1, 0], true", "f64[4, 6], none", "f64[4, 0], [1]"});
  add(samples, {"any.dims", "all.dims"},
      {"bool[4, 6, 5], [1]", "bool[3, 6, 1], [-1, 0], true", "bool[], none"});
  add(samples, {"amax", "amin"}, {"f64[4, 6, 5], [1]", "f64[4, 6, 5], [-1, 0], true", "f64[4, 6]"});
  add(samples,
      {"prod.dim_int", "argmax", "argmin", "max.dim", "min.dim", "median.dim", "nanmedian.dim",
       "mode"},
      {"f64[4, 6, 5], 1", "f64[4, 6], -2, true"});
  add(samples, {"any.dim", "all.dim"}, {"bool[4, 6, 5], 1", "bool[4, 6], -2, true"});
  add(samples, {"argmax", "argmin"}, {"f64[4, 6]"});
  add(samples, {"isin.Tensor_Tensor"},
      {"i64[4, 6] in 0..9, i64[5] in 0..9",
       "i64[4, 6] in 0..9, i64[3, 4] in 0..9, assume_unique=false, invert=true"});
  add(samples, {"isin.Scalar_Tensor"},
      {"3, i64[4, 6] in 0..9", "3, i64[4, 6] in 0..9, false, true"});
  add(samples, {"isin.Tensor_Scalar"}, {"i64[4, 6] in 0..9, 3"});
  add(samples, {"logsumexp"}, {"f64[4, 6, 5], [1]", "f64[4, 6], [-1, 0], true"});
  add(samples, {"var.correction", "std.correction"},
      {"f64[4, 6, 5], [1]", "f64[4, 6], [-1], correction=0, keepdim=true", "f64[4, 6]"});
  add(samples, {"linalg_vector_norm"},
      {"f64[4, 6]", "f64[4, 6, 5], 1, [1]", "f64[4, 6], 3, [-1], true"});
}

void add_along_a_dim(Samples& samples) {
  add(samples, {"cumsum", "cumprod", "logcumsumexp", "sort"},
      {"f64[4, 6, 5], 1", "f64[4, 6], -2", "f64[4, 6] strides [1, 4], 0"});
  samples.push_back({"sort", "f64[4, 6], 1, true"});
  add(samples, {"_safe_softmax"}, {"f64[4, 6], 1", "f64[4, 6] strides [1, 4], 0"});
  add(samples, {"_softmax", "_log_softmax"},
      {"f64[4, 6, 5], 1, false", "f64[4, 6], -1, false", "f64[4, 6] strides [1, 4], 0, false"});
  add(samples, {"_softmax_backward_data", "_log_softmax_backward_data"},
      {"f64[4, 6, 5], f64[4, 6, 5], 1, f64", "f64[4, 6], f64[4, 6], -1, f64",
       "f64[4, 6] strides [1, 4], f64[4, 6] strides [1, 4], 0, f64"});
}

void add_norms(Samples& samples) {
  add(samples, {"native_layer_norm"},
      {"f64[4, 6, 5], [5], f64[5], f64[5], 1e-5", "f64[4, 6, 5], [6, 5], f64[6, 5], none, 1e-5",
       "f64[4, 6], [6], none, none, 1e-5"});
  add(samples, {"native_layer_norm_backward"},
      {"f64[4, 6, 5], f64[4, 6, 5], [5], f64[4, 6, 1], f64[4, 6, 1] in 0.5..2, f64[5], f64[5], "
       "[1, 1, 1]",
       "f64[4, 6], f64[4, 6], [6], f64[4, 1], f64[4, 1] in 0.5..2, f64[6], none, [1, 1, 0]"});
  add(samples, {"_fused_rms_norm"},
      {"f64[4, 6, 5], [5], f64[5], 1e-5", "f64[4, 6, 5], [6, 5], f64[6, 5], none",
       "f64[4, 6], [6], none, 1e-5"});
}

void add_lookups(Samples& samples) {
  add(samples, {"embedding"},
      {"f64[7, 5], i64[4, 3] in 0..6", "f64[7, 5], i64[6] in 0..6, padding_idx=2",
       "f64[7, 5], i64[] in 0..6"});
  add(samples, {"embedding_dense_backward"},
      {"f64[4, 3, 5], i64[4, 3] in 0..6, 7, -1, false", "f64[6, 5], i64[6] in 0..6, 7, 2, false"});
  for (const std::string reduction : {"0", "1", "2"}) {
    const std::string grad = reduction == "0" ? "f64[6]" : "f64[]";
    add(samples, {"nll_loss_forward"},
        {"f64[6, 5], i64[6] in 0..4, none, " + reduction + ", -100",
         "f64[6, 5], i64[6] in 0..4, f64[5] in 0.5..2, " + reduction + ", 1"});
    add(samples, {"nll_loss_backward"},
        {grad + ", f64[6, 5], i64[6] in 0..4, none, " + reduction + ", -100, f64[] in 4..6",
         grad + ", f64[6, 5], i64[6] in 0..4, f64[5] in 0.5..2, " + reduction +
             ", 1, f64[] in 4..6"});
  }
}

void add_losses(Samples& samples) {
  for (const std::string reduction : {"0", "1", "2"}) {
    const std::string pair = "f64[4, 6], f64[4, 6], " + reduction;
    const std::string turned = "f64[4, 6] strides [1, 4], f64[4, 6] strides [1, 4], " + reduction;
    const std::string grad = reduction == "0" ? "f64[4, 6], " : "f64[], ";
    add(samples, {"mse_loss", "soft_margin_loss", "smooth_l1_loss", "huber_loss"}, {pair, turned});
    add(samples, {"mse_loss_backward", "soft_margin_loss_backward"},
        {grad + pair, "f64[4, 6], " + pair});
    add(samples, {"smooth_l1_loss_backward", "huber_loss_backward"},
        {grad + pair + ", 0.5", "f64[4, 6], " + pair + ", 0.5"});
  }
}

void add_attention(Samples& samples) {
  const std::string qkv = "f64[3, 4, 5, 8], f64[3, 4, 6, 8], f64[3, 4, 6, 8]";
  add(samples, {"_scaled_dot_product_flash_attention_for_cpu"},
      {qkv, qkv + ", is_causal=true", qkv + ", attn_mask=f64[3, 4, 5, 6]",
       qkv + ", attn_mask=f64[5, 6], scale=0.5",
       "f64[3, 4, 5, 8] strides [160, 8, 32, 1], f64[3, 4, 6, 8] strides [192, 8, 32, 1], "
       "f64[3, 4, 6, 8] strides [192, 8, 32, 1]"});
  add(samples, {"_scaled_dot_product_flash_attention_for_cpu_backward"},
      {"f64[3, 4, 5, 8], " + qkv + ", f64[3, 4, 5, 8], f64[3, 4, 5] in 2..4, 0.0, false",
       "f64[3, 4, 5, 8], " + qkv +
           ", f64[3, 4, 5, 8], f64[3, 4, 5] in 2..4, 0.0, false, attn_mask=f64[3, 4, 5, 6]"});
}

void add_joins(Samples& samples) {
  add(samples, {"ones_like", "zeros_like"}, {"f64[4, 6]", "f64[4, 6, 2]"});
  add(samples, {"full_like"}, {"f64[4, 6], 2"});
  add(samples, {"cat"},
      {"{f64[4, 6], f64[4, 3]}, 1", "{f64[4, 6], f64[2, 6], f64[3, 6]}, -2",
       "{f64[4, 6] strides [1, 4], f64[4, 6] strides [1, 4]}, 0", "{f64[4, 6], f32[4, 6]}"});
  add(samples, {"stack"}, {"{f64[4, 6], f64[4, 6], f64[4, 6]}, 1", "{f64[4], f64[4]}, -1"});
  samples.push_back({"slice_backward", "f64[4, 2, 5], [4, 6, 5], 1, 1, 5, 2"});
  samples.push_back({"select_backward", "f64[4, 5], [4, 6, 5], -2, 3"});
}

void add_fused(Samples& samples) {
  const std::string tensors = "{f64[4, 6]}";
  const std::string positive = "{f64[4, 6] in 0.1..1}";
  const std::string steps = "{f32[] in 3..4}";
  for (const std::string op : {"_fused_adam_", "_fused_adamw_"}) {
    samples.push_back({op, tensors + ", " + tensors + ", " + tensors + ", " + positive + ", {}, " +
                               steps + ", 0.1, 0.9, 0.99, 0.01, 1e-8, false, false"});
  }
  samples.push_back({"_fused_sgd_", tensors + ", " + tensors + ", " + tensors +
                                        ", 0.01, 0.9, 0.1, 0.0, false, false, false"});
  samples.push_back(
      {"_fused_sgd_", tensors + ", " + tensors + ", {}, 0.01, 0.0, 0.1, 0.0, false, false, false"});
  samples.push_back({"_fused_adagrad_", tensors + ", " + tensors + ", " + positive + ", " + steps +
                                            ", 0.1, 0.01, 0.01, 1e-8, false"});
}

// Arguments and shapes at the edge of what a rule covers.
Samples make_edge_samples() {
  Samples samples;
  add(samples, {"rsub.Scalar"}, {"f64[4, 6], 0.7, -1"});
  add(samples, {"add.Scalar", "sub.Scalar"}, {"f64[4, 6], 0.7, -2"});
  add(samples, {"softplus"}, {"f64[4, 6], -1.5, 1"});
  add(samples, {"clamp"}, {"f64[4, 6], 0.5, -0.5"});
  add(samples, {"sum", "prod"}, {"f64[4, 6] in 0.5..3, dtype=i64"});
  add(samples, {"sum.dim_IntList"}, {"f64[4, 6] in 0.5..3, [1], dtype=i64"});
  add(samples, {"cumsum"}, {"f64[4, 6] in 0.5..3, 1, dtype=i64"});
  add(samples, {"copy"}, {"i64[4, 6], f64[4, 6] in 0..9", "f64[4, 6], c128[4, 6]"});
  add(samples, {"mul.Tensor", "div.Tensor", "add.Tensor"}, {"i64[4, 6], i64[4, 6] in 1..4"});
  add(samples, {"mul.Scalar", "div.Scalar"}, {"i64[4, 6], 3"});
  add(samples, {"amax", "amin", "nansum", "sum.dim_IntList"},
      {"f64[4, 6], []", "f64[4, 6], [], keepdim=true", "f64[], [0]", "f64[1, 6], [0]"});
  add(samples, {"any.dims", "all.dims"}, {"bool[], [0]"});
  add(samples, {"linalg_vector_norm"}, {"f64[4, 6], 2, []", "f64[], 2, [0]"});
  add(samples, {"argmax", "argmin"}, {"f64[4, 6], none, true", "f64[], 0"});
  add(samples,
      {"max.dim", "min.dim", "median.dim", "mode", "cumsum", "cumprod", "sort", "prod.dim_int",
       "logcumsumexp"},
      {"f64[], 0", "f64[], -1", "f64[4, 1], 1"});
  add(samples, {"_softmax", "_log_softmax"}, {"f64[], 0, false", "f64[0, 6], 1, false"});
  add(samples, {"exp", "sum", "prod", "neg"}, {"f64[0, 6]", "f64[4, 0]"});
  add(samples, {"amax", "sum.dim_IntList"}, {"f64[0, 6], [1]", "f64[6, 3, 0], [1]"});
  add(samples, {"add.Tensor"},
      {"f64[0, 6], f64[1, 6]", "f64[1, 6], f64[1, 1]",
       "f64[2, 3, 4, 5] strides [60, 1, 15, 3], f64[3, 1, 1]"});
  add(samples, {"mm"}, {"f64[4, 0], f64[0, 5]", "f64[0, 6], f64[6, 5]", "f64[1, 1], f64[1, 1]"});
  add(samples, {"bmm"}, {"f64[3, 4, 6] strides [24, 1, 4], f64[3, 6, 5] strides [30, 1, 6]"});
  add(samples, {"addmm"},
      {"f64[1, 5], f64[4, 6], f64[6, 5]", "f64[1, 1], f64[4, 6], f64[6, 5]",
       "f64[4, 5], f64[4, 6], f64[6, 5], beta=0", "i64[4, 5], i64[4, 6], i64[6, 5]"});
  add(samples, {"addmv"}, {"f64[1], f64[4, 6], f64[6]", "f64[], f64[4, 6], f64[6]"});
  add(samples, {"addbmm"}, {"f64[5], f64[3, 4, 6], f64[3, 6, 5]"});
  add(samples, {"native_layer_norm"},
      {"f64[4, 6] strides [1, 4], [6], f64[6], none, 1e-5", "f64[6], [6], f64[6], f64[6], 1e-5",
       "f64[0, 6], [6], f64[6], f64[6], 1e-5"});
  add(samples, {"_scaled_dot_product_flash_attention_for_cpu"},
      {"f64[3, 4, 5, 8], f64[3, 4, 6, 8], f64[3, 4, 6, 8], attn_mask=f64[3, 1, 5, 6]",
       "f64[1, 4, 5, 8], f64[1, 4, 6, 8], f64[1, 4, 6, 8], attn_mask=f64[1, 1, 5, 6]"});
  add(samples, {"cat"}, {"{f64[4, 0], f64[4, 3]}, 1", "{f64[4, 6], i64[4, 6]}", "{f64[4, 6]}"});
  add(samples, {"slice_backward"}, {"f64[4, 6], [4, 6], -1, 0, 9223372036854775807, 1"});
  add(samples, {"select_backward"}, {"f64[], [4], 0, -1"});
  add(samples, {"masked_fill.Scalar"}, {"f64[6], bool[4, 6], 0.7"});
  add(samples, {"where.self"}, {"bool[4, 1], i64[4, 6], f64[1, 6]", "bool[], f64[4, 6], f64[6]"});
  add(samples, {"lerp.Scalar"}, {"f64[4, 6], f64[6], 0.3"});
  add(samples, {"embedding"}, {"f64[7, 5], i32[4, 3] in 0..6", "f64[1, 5], i64[4] in 0..0"});
  for (const Sample& sample : indexing_edge_samples()) samples.push_back(sample);
  add_image_edge_samples(samples);
  return samples;
}

Samples make_rule_samples() {
  Samples samples;
  add_unary(samples);
  add_with_numbers(samples);
  add_binary(samples);
  add_ternary(samples);
  add_pointwise_backward(samples);
  add_products(samples);
  add_reductions(samples);
  add_along_a_dim(samples);
  add_norms(samples);
  add_lookups(samples);
  add_losses(samples);
  add_attention(samples);
  add_joins(samples);
  add_fused(samples);
  add_indexing_samples(samples);
  for (const auto& more : {samples_of_totals()}) {
    samples.insert(samples.end(), more.begin(), more.end());
  }
  add_samples_within(samples);
  add_image_samples(samples);
  for (const auto& more : {pointwise_samples()}) {
    samples.insert(samples.end(), more.begin(), more.end());
  }
  return samples;
}

}  // namespace

const std::vector<Sample>& rule_samples() {
  static const Samples samples = make_rule_samples();
  return samples;
}

const std::vector<Sample>& edge_samples() {
  static const Samples samples = make_edge_samples();
  return samples;
}

const std::vector<Sample>& other_form_samples() {
  static const Samples samples = {
      {"any.dims", "bool[4, 6], []"},
      {"all.dims", "bool[4, 6], []"},
      {"add_.Tensor", "f64[4, 6], f64[6], alpha=2"},
      {"mul_.Tensor", "f64[4, 6], f64[4, 6]"},
      {"div_.Scalar", "f64[4, 6], 3"},
      {"exp_", "f64[4, 6]"},
      {"zero_", "f64[4, 6]"},
      {"copy_", "f64[4, 6], f64[4, 6]"},
      {"addmm_", "f64[4, 5], f64[4, 6], f64[6, 5]"},
      {"addcmul_", "f64[4, 6], f64[4, 6], f64[4, 6]"},
      {"masked_fill_.Scalar", "f64[4, 6], bool[4, 6], 0.7"},
      {"mul.out", "f64[4, 6], f64[4, 6], out=f64[4, 6]"},
      {"exp.out", "f64[4, 6], out=f64[4, 6]"},
      {"mm.out", "f64[4, 6], f64[6, 5], out=f64[4, 5]"},
      {"sum.IntList_out", "f64[4, 6], [1], out=f64[4]"},
      {"max.dim_max", "f64[4, 6], 1, max=f64[4], max_values=i64[4]"},
      {"cat.out", "{f64[4, 6], f64[4, 3]}, 1, out=f64[4, 9]"},
      {"_foreach_add_.List", "{f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, alpha=2"},
      {"_foreach_add.List", "{f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}"},
      {"_foreach_mul_.Scalar", "{f64[4, 6], f64[5]}, 2.5"},
      {"_foreach_mul.Tensor", "{f64[4, 6], f64[5]}, f64[]"},
      {"_foreach_addcdiv_.Scalar",
       "{f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, 0.5"},
      {"_foreach_sqrt", "{f64[4, 6] in 0.5..2, f64[5] in 0.5..2}"},
      {"_foreach_lerp_.Scalar", "{f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, 0.3"},
      {"_foreach_norm.Scalar", "{f64[4, 6], f64[5]}"},
      {"_fused_adamw_",
       "{f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, "
       "{f64[4, 6] in 0.1..1, f64[5] in 0.1..1}, {}, {f32[] in 3..4, f32[] in 3..4}, 0.1, 0.9, "
       "0.99, 0.01, 1e-8, false, false"},
      {"_fused_adamw",
       "{f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, "
       "{f64[4, 6] in 0.1..1, f64[5] in 0.1..1}, {}, {f32[] in 3..4, f32[] in 3..4}, 0.1, 0.9, "
       "0.99, 0.01, 1e-8, false, false"},
      {"_fused_sgd_",
       "{f64[4, 6], f64[5]}, {f64[4, 6], f64[5]}, {}, 0.01, 0.0, 0.1, 0.0, false, false, false"},
  };
  return samples;
}

}  // namespace tegula
