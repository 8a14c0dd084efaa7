// The moves that rules leave unused, listed in unused_moves.txt so that a change shows in review.
//
// TEGULA_WRITE_GOLDEN=1 writes the list anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tegula/ops/families.h"
#include "tegula/testing/move_search.h"
#include "tests/testing/samples.h"

namespace tegula {
namespace unused_moves_test {

// Of these libtorch does not check that operands fit each other.
OperandsTried tried_for(const std::string& op) {
  static const std::set<std::string> trusting = {
      "_scaled_dot_product_flash_attention_for_cpu",
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      "multi_margin_loss",
      "multi_margin_loss_backward",
      "native_layer_norm_backward",
      "_cdist_backward",
      "_embedding_bag_per_sample_weights_backward",
      "_unsafe_index.Tensor",
      "_unsafe_index_put",
      "lu_unpack",
      "unfold_backward",
      "_weight_norm_interface",
      "_weight_norm_interface_backward",
      "native_batch_norm_backward",
      "batch_norm_backward",
      "native_group_norm",
      "native_group_norm_backward",
      "fractional_max_pool2d",
      "fractional_max_pool3d",
      "_adaptive_avg_pool2d_backward",
      "_adaptive_avg_pool3d_backward",
      "avg_pool2d_backward",
      "avg_pool3d_backward",
      "grid_sampler_2d_backward",
      "grid_sampler_3d_backward"};
  return trusting.contains(op) ? OperandsTried::FittingOnly : OperandsTried::All;
}

// Ops that differ from a simple function only at numbers that are never drawn (0, NaN), or by less
// than rounding, or give one of few values: what is right of them by luck is not listed.
bool is_right_by_luck(const std::string& op) {
  static const std::set<std::string> lucky = {
      "_grouped_mm", "_is_all_true",       "_is_any_true", "all",
      "any",         "bucketize.Scalar",   "heaviside",    "isinf",
      "isnan",       "isneginf",           "isposinf",     "nan_to_num",
      "nextafter",   "searchsorted.Scalar"};
  return lucky.contains(op);
}

// Of these libtorch does not check that an index is within a dim, which a shard of it need not
// have.
bool trusts_indices(const std::string& op) {
  return op.starts_with("multilabel_margin_loss") || op.starts_with("nll_loss2d");
}

// Ops with so many operands that all combinations are too many to try.
bool has_too_many_operands(const std::string& op) {
  return op == "_native_multi_head_attention" || op == "_transformer_encoder_layer_fwd";
}

// Ops that write where indices say, which libtorch does not check: a search would write elsewhere.
bool writes_by_index(const std::string& op) {
  const bool is_pooling = op.find("max_pool") != std::string::npos;
  return op.starts_with("max_unpool") || (is_pooling && op.ends_with("_backward"));
}

// "op: move", and the first sample that shows it.
std::map<std::string, std::string> unused_by_line() {
  std::map<std::string, std::string> lines;
  for (const Sample& sample : rule_samples()) {
    if (is_right_by_luck(sample.op) || trusts_indices(sample.op)) continue;
    if (has_too_many_operands(sample.op) || writes_by_index(sample.op)) continue;
    for (const AxisMove& move : unused_moves(rule_table(), sample, tried_for(sample.op))) {
      lines.try_emplace(sample.op + ": " + to_string(move), sample.arguments);
    }
  }
  return lines;
}

std::filesystem::path golden_path() {
  return std::filesystem::path(__FILE__).parent_path() / "unused_moves.txt";
}

TEST(UnusedMoves, AreTheOnesThatAreListed) {
  std::ostringstream now;
  now << "# Moves that would need no communication and that no rule lists:\n"
         "#   op: operands -> results    in the sample\n";
  for (const auto& [line, sample] : unused_by_line()) now << line << "    in " << sample << "\n";
  if (std::getenv("TEGULA_WRITE_GOLDEN")) std::ofstream(golden_path()) << now.str();
  std::ifstream file(golden_path());
  const std::string listed{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(now.str(), listed);
}

TEST(UnusedMoves, OfARuleThatKnowsNothingAreAllThatAreRight) {
  RuleTable none;
  std::set<std::string> found;
  for (const AxisMove& move : unused_moves(none, {"mm", "f64[4, 6], f64[6, 5]"})) {
    found.insert(to_string(move));
  }
  EXPECT_EQ(found,
            (std::set<std::string>{"P(sum), R -> P(sum)", "R, P(sum) -> P(sum)", "R, S(1) -> S(1)",
                                   "S(0), R -> S(0)", "S(1), S(0) -> P(sum)"}));
}

}  // namespace unused_moves_test
}  // namespace tegula
