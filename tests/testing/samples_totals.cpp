// Reductions, searches and losses.
#include <string>

#include "tests/testing/samples.h"

namespace tegula {
namespace {

using Names = std::vector<std::string>;

void add_reductions_by_totals(std::vector<Sample>& samples) {
  add(samples, {"any", "all"}, {"bool[4, 6]", "f64[4, 6]"});
  add(samples, {"_is_all_true", "_is_any_true"}, {"bool[4, 6]"});
  add(samples, {"count_nonzero"}, {"i64[4, 6, 5], 1", "bool[4, 6], none"});
  add(samples, {"count_nonzero.dim_IntList"}, {"i64[4, 6, 5], [-1, 0]"});
  add(samples, {"aminmax"}, {"f64[4, 6, 5], dim=1", "f64[4, 6], dim=0, keepdim=true"});
  add(samples, {"kthvalue"}, {"f64[4, 6, 5], 2, 1", "f64[4, 6], 3, -2, true"});
  add(samples, {"var_mean.correction", "std_mean.correction"},
      {"f64[4, 6, 5], [1]", "f64[4, 6], [-1], correction=0, keepdim=true"});
  add(samples, {"norm.ScalarOpt_dim"}, {"f64[4, 6, 5], 1, [1]", "f64[4, 6], none, [0], true"});
  samples.push_back({"norm.ScalarOpt_dim_dtype", "f64[4, 6], 3, [1], true, dtype=f64"});
  add(samples, {"cummax", "cummin"}, {"f64[4, 6, 5], 1", "f64[4, 6], -2"});
  add(samples, {"topk"}, {"f64[4, 6, 5], 2, 1", "f64[4, 6], 3, -2, false"});
}

// The sequences are sorted, since all their elements are equal.
void add_searches_by_totals(std::vector<Sample>& samples) {
  add(samples, {"searchsorted.Tensor"},
      {"f64[5] in 0.3..0.3, f64[4, 6]", "f64[4, 5] in 0.3..0.3, f64[4, 6], right=true",
       "f64[5] in 0.3..0.3, f64[], out_int32=true"});
  samples.push_back({"searchsorted.Scalar", "f64[5] in 0.3..0.3, 0.5"});
  samples.push_back({"bucketize.Tensor", "f64[4, 6], f64[5] in 0.3..0.3"});
  samples.push_back({"bucketize.Scalar", "0.5, f64[5] in 0.3..0.3"});
}

void add_losses_by_totals(std::vector<Sample>& samples) {
  for (const std::string reduction : {"0", "1", "2"}) {
    const bool is_one = reduction != "0";
    const std::string pair = "f64[4, 6] in 0.1..0.9, f64[4, 6] in 0.1..0.9, ";
    const std::string grad = is_one ? "f64[], " : "f64[4, 6], ";
    add(samples, {"binary_cross_entropy"},
        {pair + "none, " + reduction, pair + "f64[6] in 0.5..2, " + reduction});
    add(samples, {"binary_cross_entropy_backward"},
        {grad + pair + "none, " + reduction, grad + pair + "f64[4, 1] in 0.5..2, " + reduction});
    add(samples, {"binary_cross_entropy_with_logits"},
        {pair + "none, none, " + reduction,
         pair + "f64[4, 6] in 0.5..2, f64[6] in 0.5..2, " + reduction});

    const std::string rows = is_one ? "f64[], " : "f64[6], ";
    const std::string row_margins = "f64[6, 5], i64[6] in 0..4, 1, 1, ";
    add(samples, {"multi_margin_loss"},
        {row_margins + "none, " + reduction, row_margins + "f64[5] in 0.5..2, " + reduction});
    add(samples, {"multi_margin_loss_backward"},
        {rows + row_margins + "none, " + reduction,
         rows + row_margins + "f64[5] in 0.5..2, " + reduction});
    const std::string labels = "f64[6, 5], i64[6, 5] in -1..4, " + reduction;
    samples.push_back({"multilabel_margin_loss_forward", labels});
    samples.push_back(
        {"multilabel_margin_loss_backward", rows + labels + ", f64[6, 5] in 0.0..1.0"});

    const std::string places = is_one ? "f64[], " : "f64[3, 4, 2], ";
    const std::string image = "f64[3, 5, 4, 2], i64[3, 4, 2] in 0..4, ";
    const std::string weight = "f64[5] in 0.5..2, ";
    add(samples, {"nll_loss2d_forward"},
        {image + "none, " + reduction + ", -100", image + weight + reduction + ", 1"});
    add(samples, {"nll_loss2d_backward"},
        {places + image + "none, " + reduction + ", -100, f64[] in 4..6",
         places + image + weight + reduction + ", 1, f64[] in 4..6"});
  }
}

}  // namespace

std::vector<Sample> samples_of_totals() {
  std::vector<Sample> samples;
  add_reductions_by_totals(samples);
  add_searches_by_totals(samples);
  add_losses_by_totals(samples);
  return samples;
}

}  // namespace tegula
