#include "tegula/rules/axis_moves.h"

#include <gtest/gtest.h>

#include "tegula/ops/families.h"
#include "tests/rules/calls.h"

namespace tegula {
namespace axis_moves_test {

using Texts = std::vector<std::string>;

// Moves in the order in which they are listed; averages, which follow sums, only if asked for.
enum class Averages { Left, Shown };
Texts moves(const OpSchema& schema, Averages averages = Averages::Left) {
  const auto rule = rule_table().find(schema.op);
  if (!rule) return {"no rule"};
  const auto signature = rule->signature(schema);
  if (!signature) return {"no signature"};
  Texts listed = moves_of(*signature);
  if (averages == Averages::Left) {
    std::erase_if(listed, [](const std::string& move) { return move.find("avg") != move.npos; });
  }
  return listed;
}

TEST(AxisMoves, Mm) {
  EXPECT_EQ(moves(whole_call("mm", {"f32[8, 6]", "f32[6, 4]"}), Averages::Shown),
            (Texts{"R, R -> R", "S(0), R -> S(0)", "S(1), S(0) -> P(sum)", "R, S(1) -> S(1)",
                   "P(sum), R -> P(sum)", "R, P(sum) -> P(sum)", "P(avg), R -> P(avg)",
                   "R, P(avg) -> P(avg)"}));
}

TEST(AxisMoves, AddmmOwesItsBiasWhereKIsCut) {
  EXPECT_EQ(moves(whole_call("addmm", {"f32[4]", "f32[8, 6]", "f32[6, 4]"})),
            (Texts{"R, R, R -> R", "S(0), R, S(1) -> S(1)", "R, S(0), R -> S(0)",
                   "P(sum), S(1), S(0) -> P(sum)", "P(sum), P(sum), R -> P(sum)",
                   "P(sum), R, P(sum) -> P(sum)"}));
}

TEST(AxisMoves, Bmm) {
  EXPECT_EQ(moves(whole_call("bmm", {"f32[3, 8, 6]", "f32[3, 6, 4]"})),
            (Texts{"R, R -> R", "S(0), S(0) -> S(0)", "S(1), R -> S(1)", "S(2), S(1) -> P(sum)",
                   "R, S(2) -> S(2)", "P(sum), R -> P(sum)", "R, P(sum) -> P(sum)"}));
}

// The bias's gradient depends on the output's gradient alone, which has no input channels.
TEST(AxisMoves, AResultThatDependsOnNothingCutIsWhole) {
  using argument::Tensor;
  const std::vector<Argument> arguments = {Tensor{0}, Tensor{1},      Tensor{2}, Ints{5},
                                           Ints{1},   Ints{1},        Ints{1},   false,
                                           Ints{0},   std::int64_t{1}};
  const Texts listed = moves(whole_call(
      "convolution_backward", {"f32[3, 5, 7]", "f32[3, 4, 7]", "f32[5, 4, 3]"}, arguments));
  EXPECT_EQ(listed, (Texts{"R, R, R -> R, R, R", "S(0), S(0), R -> S(0), P(sum), P(sum)",
                           "R, S(1), S(1) -> S(1), S(1), R", "S(1), R, S(0) -> P(sum), S(0), S(0)",
                           "P(sum), R, R -> P(sum), P(sum), P(sum)"}));
}

// Singular values alone: what stands for the vectors has no elements.
TEST(AxisMoves, AResultWithoutElementsOwesNothing) {
  const std::vector<Argument> arguments = {argument::Tensor{0}, false, false, argument::None{}};
  EXPECT_EQ(moves(whole_call("_linalg_svd", {"f32[3, 5, 4]"}, arguments)),
            (Texts{"R -> R, R, R", "S(0) -> R, S(0), R"}));
}

TEST(AxisMoves, ASumOfTensorsOwesIfBothDo) {
  EXPECT_EQ(moves(whole_call("add.Tensor", {"f32[8, 6]", "f32[6]"}), Averages::Shown),
            (Texts{"R, R -> R", "S(0), R -> S(0)", "S(1), S(0) -> S(1)", "P(sum), P(sum) -> P(sum)",
                   "P(avg), P(avg) -> P(avg)", "P(avg), R -> P(avg)", "R, P(avg) -> P(avg)"}));
}

TEST(AxisMoves, AProductOwesIfOneDoes) {
  EXPECT_EQ(moves(whole_call("mul.Tensor", {"f32[8]", "f32[]"})),
            (Texts{"R, R -> R", "S(0), R -> S(0)", "P(sum), R -> P(sum)", "R, P(sum) -> P(sum)"}));
}

TEST(AxisMoves, AQuotientIsLinearInWhatIsDivided) {
  EXPECT_EQ(moves(whole_call("div.Tensor", {"f32[8]", "f32[8]"})),
            (Texts{"R, R -> R", "S(0), S(0) -> S(0)", "P(sum), R -> P(sum)"}));
}

TEST(AxisMoves, WhereIsLinearInBothChoicesTogether) {
  EXPECT_EQ(moves(whole_call("where.self", {"bool[8]", "f32[8]", "f32[8]"})),
            (Texts{"R, R, R -> R", "S(0), S(0), S(0) -> S(0)", "R, P(sum), P(sum) -> P(sum)"}));
}

TEST(AxisMoves, Addcmul) {
  EXPECT_EQ(moves(whole_call("addcmul", {"f32[8]", "f32[8]", "f32[8]"})),
            (Texts{"R, R, R -> R", "S(0), S(0), S(0) -> S(0)", "P(sum), P(sum), R -> P(sum)",
                   "P(sum), R, P(sum) -> P(sum)"}));
}

TEST(AxisMoves, CopysignPassesNoSum) {
  EXPECT_EQ(moves(whole_call("copysign.Tensor", {"f32[8]", "f32[8]"})),
            (Texts{"R, R -> R", "S(0), S(0) -> S(0)"}));
}

TEST(AxisMoves, ExtremesPassThroughWhatKeepsOrTurnsTheOrder) {
  EXPECT_EQ(moves(whole_call("relu", {"f32[8]"})),
            (Texts{"R -> R", "S(0) -> S(0)", "P(max) -> P(max)", "P(min) -> P(min)"}));
  EXPECT_EQ(moves(whole_call("neg", {"f32[8]"})),
            (Texts{"R -> R", "S(0) -> S(0)", "P(sum) -> P(sum)", "P(max) -> P(min)",
                   "P(min) -> P(max)"}));
  EXPECT_EQ(moves(whole_call("rsub.Scalar", {"f32[8]"})), (Texts{"R -> R", "S(0) -> S(0)"}));
}

TEST(AxisMoves, ExtremesOfIntegersDoNotPassSinceTheyWrap) {
  EXPECT_EQ(moves(whole_call("add.Scalar", {"u8[8]"})), (Texts{"R -> R", "S(0) -> S(0)"}));
}

TEST(AxisMoves, SumOverADim) {
  const auto sum = [](const Ints& dims, bool keepdim) {
    return whole_call("sum.dim_IntList", {"f32[8, 6]"}, {argument::Tensor{0}, dims, keepdim});
  };
  EXPECT_EQ(moves(sum({-1}, false)),
            (Texts{"R -> R", "S(0) -> S(0)", "S(1) -> P(sum)", "P(sum) -> P(sum)"}));
  EXPECT_EQ(moves(sum({0}, true)),
            (Texts{"R -> R", "S(0) -> P(sum)", "S(1) -> S(1)", "P(sum) -> P(sum)"}));
  EXPECT_EQ(moves(sum({}, false)),
            (Texts{"R -> R", "S(0) -> P(sum)", "S(1) -> P(sum)", "P(sum) -> P(sum)"}));
}

TEST(AxisMoves, Amax) {
  EXPECT_EQ(moves(whole_call("amax", {"f32[8, 6]"}, {argument::Tensor{0}, Ints{1}, false})),
            (Texts{"R -> R", "S(0) -> S(0)", "S(1) -> P(max)"}));
}

TEST(AxisMoves, SoftmaxKeepsItsDimWhole) {
  const OpSchema softmax =
      whole_call("_softmax", {"f32[8, 6]"}, {argument::Tensor{0}, std::int64_t{-1}, false});
  EXPECT_EQ(moves(softmax), (Texts{"R -> R", "S(0) -> S(0)"}));
}

TEST(AxisMoves, AnyOverNoDimsIsNotCovered) {
  EXPECT_EQ(moves(whole_call("any.dims", {"bool[8]"}, {argument::Tensor{0}, Ints{}, false})),
            (Texts{"no signature"}));
  EXPECT_EQ(
      moves(whole_call("any.dims", {"bool[8]"}, {argument::Tensor{0}, argument::None{}, false})),
      (Texts{"R -> R", "S(0) -> P(max)"}));
}

TEST(AxisMoves, LayerNorm) {
  const OpSchema norm =
      whole_call("native_layer_norm", {"f32[8, 4, 6]", "f32[6]"},
                 {argument::Tensor{0}, Ints{6}, argument::Tensor{1}, argument::None{}});
  EXPECT_EQ(moves(norm), (Texts{"R, R -> R, R, R", "S(0), R -> S(0), S(0), S(0)",
                                "S(1), R -> S(1), S(1), S(1)"}));
}

TEST(AxisMoves, GradientsOfLayerNormsWeightsAreOwed) {
  const OpSchema norm =
      whole_call("native_layer_norm_backward",
                 {"f32[8, 6]", "f32[8, 6]", "f32[8, 1]", "f32[8, 1]", "f32[6]", "f32[6]"},
                 {argument::Tensor{0}, argument::Tensor{1}, Ints{6}, argument::Tensor{2},
                  argument::Tensor{3}, argument::Tensor{4}, argument::Tensor{5}});
  EXPECT_EQ(moves(norm), (Texts{"R, R, R, R, R, R -> R, R, R",
                                "S(0), S(0), S(0), S(0), R, R -> S(0), P(sum), P(sum)"}));
}

TEST(AxisMoves, RowsAreLookedUpWhereTheyAre) {
  EXPECT_EQ(moves(whole_call("embedding", {"f32[10, 6]", "i64[3, 5]"})),
            (Texts{"R, R -> R", "S(0), R -> M(10)", "S(1), R -> S(2)", "R, S(0) -> S(0)",
                   "R, S(1) -> S(1)"}));
}

TEST(AxisMoves, CatKeepsItsDimWhole) {
  const OpSchema cat =
      whole_call("cat", {"f32[8, 6]", "f32[8, 4]"}, {argument::TensorList{0, 2}, std::int64_t{1}});
  EXPECT_EQ(moves(cat), (Texts{"R, R -> R", "S(0), S(0) -> S(0)", "P(sum), P(sum) -> P(sum)"}));
}

OpSchema attention(const std::vector<std::string>& tensors, bool is_causal,
                   const Argument& mask = argument::None{}) {
  return whole_call("_scaled_dot_product_flash_attention_for_cpu", tensors,
                    {argument::Tensor{0}, argument::Tensor{1}, argument::Tensor{2},
                     argument::Other{}, is_causal, mask});
}

TEST(AxisMoves, AttentionCutsBatchesHeadsAndRowsOfTheQuery) {
  const std::vector<std::string> three = {"f32[4, 6, 8, 2]", "f32[4, 6, 9, 2]", "f32[4, 6, 9, 2]"};
  std::vector<std::string> with_mask = three;
  with_mask.push_back("f32[1, 6, 8, 9]");
  EXPECT_EQ(moves(attention(three, false)),
            (Texts{"R, R, R -> R, R", "S(0), S(0), S(0) -> S(0), S(0)",
                   "S(1), S(1), S(1) -> S(1), S(1)", "S(2), R, R -> S(2), S(2)"}));
  EXPECT_EQ(moves(attention(three, true)),
            (Texts{"R, R, R -> R, R", "S(0), S(0), S(0) -> S(0), S(0)",
                   "S(1), S(1), S(1) -> S(1), S(1)"}));
  EXPECT_EQ(moves(attention(with_mask, false, argument::Tensor{3})),
            (Texts{"R, R, R, R -> R, R", "S(0), S(0), S(0), R -> S(0), S(0)",
                   "S(1), S(1), S(1), S(1) -> S(1), S(1)", "S(2), R, R, S(2) -> S(2), S(2)"}));
  EXPECT_EQ(moves(attention({"f32[4, 6, 8, 2]", "f32[4, 1, 9, 2]", "f32[4, 1, 9, 2]"}, false)),
            (Texts{"no signature"}));
}

TEST(AxisMoves, LongSumsListNoMixedAverages) {
  std::vector<std::string> tensors(20, "f32[8, 6]");
  const OpSchema cat = whole_call("cat", tensors, {argument::TensorList{0, 20}, std::int64_t{1}});
  EXPECT_EQ(moves(cat, Averages::Shown).size(), 4U);
}

}  // namespace axis_moves_test
}  // namespace tegula
