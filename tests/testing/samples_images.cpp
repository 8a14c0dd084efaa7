// Images: convolutions, pooling, resampling, padding, what works on channels.
#include "tests/testing/samples.h"

#include <string>

namespace tegula {
namespace {

using Samples = std::vector<Sample>;
using Names = std::vector<std::string>;

void add_convolutions(Samples& samples) {
  const std::string once = "[1, 1], [1, 1], [1, 1], false, [0, 0], 1";
  add(samples, {"convolution"},
      {"f64[3, 4, 7, 6], f64[5, 4, 3, 2], f64[5], " + once,
       "f64[3, 4, 7], f64[5, 4, 3], none, [2], [1], [2], false, [0], 1",
       "f64[3, 4, 6, 7] strides [168, 1, 28, 4], f64[5, 4, 3, 3], f64[5], " + once,
       "f64[3, 4, 7, 6], f64[4, 5, 3, 2], f64[5], [2, 1], [1, 0], [1, 2], true, [1, 0], 1",
       "f64[3, 4, 7, 6], f64[4, 1, 3, 2], f64[4], [1, 1], [1, 1], [1, 1], false, [0, 0], 4",
       "f64[3, 4, 7], f64[6, 2, 3], f64[6], [1], [1], [1], false, [0], 2",
       "f64[3, 4, 7, 6], f64[5, 4, 1, 3], f64[5], [1, 1], [0, 0], [1, 1], false, [0, 0], 1",
       "f64[3, 4, 7], f64[4, 1, 3], f64[4], [1], [1], [1], true, [0], 4"});
  samples.push_back({"convolution",
                     "f64[2, 3, 5, 6, 7], f64[4, 3, 2, 2, 2], f64[4], [1, 1, 1], [0, 0, 0], "
                     "[1, 1, 1], false, [0, 0, 0], 1"});
  add(samples, {"convolution_backward"},
      {"f64[3, 5, 7, 7], f64[3, 4, 7, 6], f64[5, 4, 3, 2], [5], " + once + ", [1, 1, 1]",
       "f64[3, 5, 2], f64[3, 4, 7], f64[5, 4, 3], none, [2], [0], [2], false, [0], 1, [1, 1, 0]",
       "f64[3, 5, 8], f64[3, 4, 6], f64[4, 5, 3], [5], [1], [0], [1], true, [0], 1, [0, 1, 1]",
       "f64[3, 4, 7], f64[3, 4, 7], f64[4, 1, 3], [4], [1], [1], [1], false, [0], 4, [1, 1, 1]",
       "f64[3, 6, 7], f64[3, 4, 7], f64[6, 2, 3], [6], [1], [1], [1], false, [0], 2, [1, 1, 1]",
       "f64[3, 5, 7], f64[3, 4, 7], f64[4, 5, 1], [5], [1], [0], [1], true, [0], 1, [1, 1, 1]"});
  const std::string kernel = "[3, 2], f64[5], [1, 1], [1, 1]";
  samples.push_back({"_slow_conv2d_forward", "f64[3, 4, 7, 6], f64[5, 4, 3, 2], " + kernel});
  samples.push_back(
      {"slow_conv_dilated2d", "f64[3, 4, 7, 6], f64[5, 4, 3, 2], " + kernel + ", [2, 1]"});
  samples.push_back({"slow_conv_transpose2d",
                     "f64[3, 4, 7, 6], f64[4, 5, 3, 2], " + kernel + ", [0, 0], [2, 1]"});
  const std::string deep = "[3, 2, 1], f64[5], [1, 1, 1], [1, 1, 0]";
  const std::string image = "f64[2, 3, 4, 5, 6], ";
  samples.push_back({"slow_conv3d_forward", image + "f64[5, 3, 3, 2, 1], " + deep});
  samples.push_back({"slow_conv_dilated3d", image + "f64[5, 3, 3, 2, 1], " + deep + ", [1, 2, 1]"});
  samples.push_back(
      {"slow_conv_transpose3d", image + "f64[3, 5, 3, 2, 1], " + deep + ", [0, 0, 0], [1, 1, 1]"});
  samples.push_back({"conv_tbc", "f64[7, 3, 4], f64[3, 4, 5], f64[5], 1"});
}

void add_pools(Samples& samples) {
  const std::string flat = "f64[3, 4, 7, 9]";
  const std::string deep = "f64[2, 3, 5, 6, 7]";
  add(samples, {"avg_pool2d"},
      {flat + ", [3, 2], [2, 2], [1, 1], true", flat + ", [2]",
       "f64[4, 7, 9], [2, 3], [1, 2], [0, 1], false, false, 5",
       "f64[3, 4, 7, 9] strides [252, 1, 36, 4], [2, 2]"});
  add(samples, {"avg_pool3d"}, {deep + ", [2, 2, 3], [2, 1, 2], [1, 0, 1], true"});
  add(samples, {"avg_pool2d_backward"},
      {"f64[3, 4, 4, 5], " + flat + ", [3, 2], [2, 2], [1, 1], false, true, none"});
  add(samples, {"avg_pool3d_backward"},
      {"f64[2, 3, 2, 3, 3], " + deep + ", [2, 2, 3], [2, 2, 2], [0, 0, 0], false, true, none"});
  add(samples, {"max_pool2d_with_indices"},
      {flat + ", [3, 2], [2, 2], [1, 1], [1, 2], true", "f64[4, 7, 9], [2]",
       "f64[3, 4, 7, 9] strides [252, 1, 36, 4], [2, 2]"});
  add(samples, {"max_pool3d_with_indices"}, {deep + ", [2, 2, 3], [2, 1, 2], [1, 0, 1]"});
  // one window, so that every index is one of it
  add(samples, {"max_pool2d_with_indices_backward"},
      {"f64[3, 4, 1, 1], " + flat +
       ", [7, 9], [7, 9], [0, 0], [1, 1], false, i64[3, 4, 1, 1] in 0..62"});
  add(samples, {"max_pool3d_with_indices_backward"},
      {"f64[2, 3, 1, 1, 1], " + deep +
       ", [5, 6, 7], [5, 6, 7], [0, 0, 0], [1, 1, 1], false, i64[2, 3, 1, 1, 1] in 0..209"});
  add(samples, {"_adaptive_avg_pool2d", "adaptive_avg_pool2d"},
      {flat + ", [5, 2]", "f64[4, 7, 9], [2, 3]"});
  add(samples, {"adaptive_max_pool2d"}, {flat + ", [5, 2]", "f64[4, 7, 9], [2, 3]"});
  add(samples, {"_adaptive_avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"},
      {deep + ", [2, 4, 3]"});
  samples.push_back({"_adaptive_avg_pool2d_backward", "f64[3, 4, 5, 2], " + flat});
  samples.push_back({"_adaptive_avg_pool3d_backward", "f64[2, 3, 2, 4, 3], " + deep});
  samples.push_back(
      {"adaptive_max_pool2d_backward", "f64[3, 4, 1, 1], " + flat + ", i64[3, 4, 1, 1] in 0..62"});
  samples.push_back({"adaptive_max_pool3d_backward",
                     "f64[2, 3, 1, 1, 1], " + deep + ", i64[2, 3, 1, 1, 1] in 0..209"});
  samples.push_back({"fractional_max_pool2d", flat + ", [2, 3], [5, 6], f64[3, 4, 2] in 0..1"});
  samples.push_back(
      {"fractional_max_pool3d", deep + ", [2, 2, 2], [3, 4, 4], f64[2, 3, 3] in 0..1"});
  samples.push_back({"fractional_max_pool2d_backward", "f64[3, 4, 5, 6], " + flat +
                                                           ", [2, 3], [5, 6], i64[3, 4, 5, 6] in "
                                                           "0..62"});
  samples.push_back(
      {"fractional_max_pool3d_backward",
       "f64[2, 3, 3, 4, 4], " + deep + ", [2, 2, 2], [3, 4, 4], i64[2, 3, 3, 4, 4] in 0..209"});
  // one element per channel: where several land in one place, the last one there is
  samples.push_back({"max_unpool2d", "f64[3, 4, 1, 1], i64[3, 4, 1, 1] in 0..62, [7, 9]"});
  samples.push_back(
      {"max_unpool3d",
       "f64[2, 3, 1, 1, 1], i64[2, 3, 1, 1, 1] in 0..209, [5, 6, 7], [5, 6, 7], [0, 0, 0]"});
}

void add_interpolation(Samples& samples) {
  add(samples, {"upsample_nearest1d", "_upsample_nearest_exact1d"}, {"f64[3, 4, 7], [5]"});
  samples.push_back({"upsample_linear1d", "f64[3, 4, 7], [9], false"});
  add(samples, {"upsample_nearest1d_backward", "_upsample_nearest_exact1d_backward"},
      {"f64[3, 4, 5], [5], [3, 4, 7]"});
  samples.push_back({"upsample_linear1d_backward", "f64[3, 4, 9], [9], [3, 4, 7], true"});
  add(samples, {"upsample_nearest2d", "_upsample_nearest_exact2d"},
      {"f64[3, 4, 7, 6], [5, 9]", "f64[3, 4, 7, 6] strides [168, 1, 24, 4], [5, 9]"});
  add(samples,
      {"upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa",
       "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"},
      {"f64[3, 4, 7, 6], [5, 9], false"});
  add(samples, {"upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward"},
      {"f64[3, 4, 5, 9], [5, 9], [3, 4, 7, 6]"});
  add(samples,
      {"upsample_bilinear2d_backward", "upsample_bicubic2d_backward",
       "_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward",
       "_upsample_lanczos2d_aa_backward"},
      {"f64[3, 4, 5, 9], [5, 9], [3, 4, 7, 6], false"});
  add(samples, {"upsample_nearest3d", "_upsample_nearest_exact3d"},
      {"f64[2, 3, 5, 6, 7], [4, 8, 9]"});
  samples.push_back({"upsample_trilinear3d", "f64[2, 3, 5, 6, 7], [4, 8, 9], true"});
  add(samples, {"upsample_nearest3d_backward", "_upsample_nearest_exact3d_backward"},
      {"f64[2, 3, 4, 8, 9], [4, 8, 9], [2, 3, 5, 6, 7]"});
  samples.push_back(
      {"upsample_trilinear3d_backward", "f64[2, 3, 4, 8, 9], [4, 8, 9], [2, 3, 5, 6, 7], false"});
}

void add_grids(Samples& samples) {
  samples.push_back(
      {"_grid_sampler_2d_cpu_fallback", "f32[3, 4, 7, 6], f32[3, 5, 8, 2], 0, 0, false"});
  add(samples, {"grid_sampler_2d"},
      {"f64[3, 4, 7, 6], f64[3, 5, 8, 2], 0, 0, false",
       "f64[3, 4, 7, 6], f64[3, 5, 8, 2], 1, 2, true"});
  samples.push_back({"grid_sampler_3d", "f64[2, 4, 7, 6, 5], f64[2, 8, 9, 10, 3], 0, 1, false"});
  samples.push_back({"grid_sampler_2d_backward",
                     "f64[3, 4, 5, 8], f64[3, 4, 7, 6], f64[3, 5, 8, 2], 0, 0, false, [1, 1]"});
  samples.push_back({"grid_sampler_3d_backward",
                     "f64[2, 4, 8, 9, 10], f64[2, 4, 7, 6, 5], f64[2, 8, 9, 10, 3], 0, 1, false, "
                     "[1, 1]"});
  add(samples, {"affine_grid_generator"},
      {"f64[3, 2, 3], [3, 4, 5, 6], false", "f64[2, 3, 4], [2, 1, 5, 6, 7], true"});
}

void add_padding(Samples& samples) {
  add(samples, {"constant_pad_nd"},
      {"f64[3, 4, 7], [1, 2], 0.5", "f64[3, 4, 7], [0, 0, 1, -1]", "f64[3, 4], [1, 1, 0, 2], 3",
       "f64[3, 4, 7, 6] strides [168, 1, 24, 4], [1, 1, 1, 1]"});
  add(samples, {"reflection_pad1d", "replication_pad1d"},
      {"f64[3, 4, 7], [2, 1]", "f64[4, 7], [1, 0]"});
  add(samples, {"reflection_pad2d", "replication_pad2d"},
      {"f64[3, 4, 7, 6], [2, 1, 1, 3]", "f64[3, 4, 7, 6], [2, 1, 0, 0]"});
  add(samples, {"reflection_pad3d", "replication_pad3d"},
      {"f64[2, 3, 4, 5, 6], [2, 1, 1, 3, 1, 1]"});
  add(samples, {"reflection_pad1d_backward", "replication_pad1d_backward"},
      {"f64[3, 4, 10], f64[3, 4, 7], [2, 1]"});
  add(samples, {"reflection_pad2d_backward", "replication_pad2d_backward"},
      {"f64[3, 4, 11, 9], f64[3, 4, 7, 6], [2, 1, 1, 3]",
       "f64[3, 4, 7, 9], f64[3, 4, 7, 6], [2, 1, 0, 0]"});
  add(samples, {"reflection_pad3d_backward", "replication_pad3d_backward"},
      {"f64[2, 3, 6, 9, 9], f64[2, 3, 4, 5, 6], [2, 1, 1, 3, 1, 1]"});
}

void add_channels(Samples& samples) {
  samples.push_back({"pixel_shuffle", "f64[3, 8, 5, 6], 2"});
  samples.push_back({"pixel_unshuffle", "f64[3, 2, 4, 6], 2"});
  add(samples, {"channel_shuffle", "native_channel_shuffle"}, {"f64[3, 6, 5, 7], 2"});
  add(samples, {"glu"}, {"f64[4, 6, 5], 1", "f64[4, 6]"});
  samples.push_back({"glu_backward", "f64[4, 3, 5], f64[4, 6, 5], 1"});
  add(samples, {"im2col"},
      {"f64[3, 4, 7, 6], [2, 3], [1, 1], [1, 0], [2, 1]",
       "f64[4, 7, 6], [2, 3], [1, 2], [0, 0], "
       "[1, 1]"});
  add(samples, {"col2im"},
      {"f64[3, 24, 16], [7, 6], [2, 3], [1, 1], [1, 0], [2, 1]",
       "f64[24, 16], [7, 6], [2, 3], [1, 1], [1, 0], [2, 1]"});
  add(samples, {"native_group_norm"},
      {"f64[4, 6, 5], f64[6], f64[6], 4, 6, 5, 3, 1e-5",
       "f64[4, 6], none, f64[6], 4, 6, 1, 2, "
       "1e-5",
       "f64[4, 6, 5, 7] strides [210, 1, 42, 6], none, none, 4, 6, 35, 3, 1e-5"});
  add(samples, {"native_group_norm_backward"},
      {"f64[4, 6, 5], f64[4, 6, 5], f64[4, 3], f64[4, 3] in 0.5..2, f64[6], 4, 6, 5, 3, [1, 1, 1]",
       "f64[4, 6, 5], f64[4, 6, 5], f64[4, 3], f64[4, 3] in 0.5..2, none, 4, 6, 5, 3, "
       "[1, 0, 0]"});
  const std::string image = "f64[4, 6, 5], f64[4, 6, 5], f64[6], ";
  const std::string fixed = "f64[6], f64[6] in 0.5..2, ";
  add(samples, {"native_batch_norm_backward"},
      {image + fixed + "f64[6], f64[6] in 0.5..2, true, 1e-5, [1, 1, 1]",
       image + fixed + "none, none, false, 1e-5, [1, 1, 1]",
       "f64[4, 6], f64[4, 6], none, none, none, f64[6], f64[6] in 0.5..2, true, 1e-5, [1, 0, 0]"});
  add(samples, {"batch_norm_backward"},
      {image + fixed + "f64[6], f64[6] in 0.5..2, true, 1e-5, [1, 1, 1], u8[0]",
       image + fixed + "none, none, false, 1e-5, [1, 1, 1], u8[0]"});
}

}  // namespace

void add_image_edge_samples(std::vector<Sample>& samples) {
  const std::string once = "[1], [1], [1], false, [0], 1";
  add(samples, {"convolution"},
      {"f64[0, 4, 7], f64[5, 4, 3], f64[5], " + once, "f64[1, 1, 7], f64[1, 1, 3], f64[1], " + once,
       "f32[3, 4, 7], f32[5, 4, 3], f32[5], " + once});
  add(samples, {"convolution_backward"},
      {"f64[0, 5, 7], f64[0, 4, 7], f64[5, 4, 3], [5], " + once + ", [1, 1, 1]"});
  add(samples, {"max_pool2d_with_indices", "avg_pool2d"}, {"f64[0, 4, 7, 9], [2, 2]"});
  add(samples, {"avg_pool2d"}, {"i64[3, 4, 7, 9], [2, 2]"});
  add(samples, {"upsample_nearest2d"}, {"u8[3, 4, 7, 6], [5, 9]"});
  add(samples, {"constant_pad_nd"},
      {"f64[3, 4], []", "i64[3, 4], [1, 1]", "bool[3, 4], [0, 1], 1"});
  add(samples, {"native_group_norm"}, {"f64[0, 6, 5], f64[6], f64[6], 0, 6, 5, 3, 1e-5"});
  add(samples, {"native_batch_norm_backward"},
      {"f64[4, 6, 5], f64[4, 6, 5], f64[6], f64[6], f64[6] in 0.5..2, f64[0], f64[0], false, 1e-5, "
       "[1, 1, 1]"});
}

void add_image_samples(std::vector<Sample>& samples) {
  add_convolutions(samples);
  add_pools(samples);
  add_interpolation(samples);
  add_grids(samples);
  add_padding(samples);
  add_channels(samples);
}

}  // namespace tegula
