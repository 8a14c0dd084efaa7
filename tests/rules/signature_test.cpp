#include "tegula/rules/signature.h"

#include <gtest/gtest.h>

#include "tests/rules/calls.h"

namespace tegula {
namespace signature_test {

std::optional<Signature> signature_for(RuleText text, const std::vector<std::string>& tensors) {
  return signature_of(text.form(), whole_call("op", tensors));
}

Shape result_of(RuleText text, const std::vector<std::string>& tensors) {
  const auto signature = signature_for(text, tensors);
  return signature ? shape_of(signature->results.at(0).term, *signature) : Shape{-1};
}

const Shape kRefused{-1};

TEST(Signature, EqualLettersAreOneFactor) {
  const Signature mm = signature_for("mk * kn -> mn", {"f32[8, 6]", "f32[6, 4]"}).value();
  EXPECT_EQ(mm.factor_sizes, (std::vector<std::int64_t>{8, 6, 4}));
  EXPECT_EQ(mm.operands[0].term.factors, (std::vector<Factor>{0, 1}));
  EXPECT_EQ(mm.operands[1].term.factors, (std::vector<Factor>{1, 2}));
  EXPECT_EQ(mm.results[0].term.factors, (std::vector<Factor>{0, 2}));
}

TEST(Signature, BroadcastDimsHaveNoFactor) {
  const Signature add = signature_for("... + ... -> ...", {"f32[8, 1]", "f32[1, 6]"}).value();
  EXPECT_EQ(add.operands[0].term.factors[1], kNoFactor);
  EXPECT_EQ(add.operands[1].term.factors[0], kNoFactor);
  EXPECT_NE(add.results[0].term.factors[0], kNoFactor);
  EXPECT_EQ(shape_of(add.results[0].term, add), (Shape{8, 6}));
}

TEST(Signature, SpreadDimsAreAlignedFromTheLast) {
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[6]", "f32[4, 8, 6]"}), (Shape{4, 8, 6}));
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[4, 8, 6]", "f32[8, 1]"}), (Shape{4, 8, 6}));
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[]", "f32[8, 6]"}), (Shape{8, 6}));
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[]", "f32[]"}), (Shape{}));
}

TEST(Signature, ShapesThatDoNotFitHaveNone) {
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[8, 6]", "f32[8, 4]"}), kRefused);
  EXPECT_EQ(result_of("mk * kn -> mn", {"f32[8, 6]", "f32[5, 4]"}), kRefused);
  EXPECT_EQ(result_of("mk * kn -> mn", {"f32[2, 8, 6]", "f32[6, 4]"}), kRefused);
  EXPECT_EQ(result_of("~m1 -> m", {"f32[8, 2]"}), kRefused);
  EXPECT_EQ(result_of("~... -> ...", {"f32[8]", "f32[8]"}), kRefused);
  EXPECT_EQ(result_of("~...mn -> ...", {"f32[8]"}), kRefused);
}

TEST(Signature, ASizeOfZeroIsASizeLikeOthers) {
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[0, 3]", "f32[1, 3]"}), (Shape{0, 3}));
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[1]", "f32[0]"}), (Shape{0}));
  EXPECT_EQ(result_of("... + ... -> ...", {"f32[0]", "f32[2]"}), kRefused);
  EXPECT_EQ(result_of("mk * kn -> mn", {"f32[3, 0]", "f32[0, 2]"}), (Shape{3, 2}));
}

TEST(Signature, FactorsOfAProductAreNotBroadcast) {
  EXPECT_EQ(result_of("mk * kn -> mn", {"f32[8, 1]", "f32[6, 4]"}), kRefused);
  EXPECT_EQ(result_of("bmk * bkn -> bmn", {"f32[1, 8, 6]", "f32[3, 6, 4]"}), kRefused);
  EXPECT_EQ(result_of("k * k -> ()", {"f32[6]", "f32[1]"}), kRefused);
  EXPECT_EQ(result_of("mn + mk * kn -> mn", {"f32[8, 4]", "f32[1, 6]", "f32[6, 4]"}), kRefused);
  EXPECT_EQ(result_of("mk * kn -> mn", {"f32[8, 1]", "f32[1, 4]"}), (Shape{8, 4}));
}

TEST(Signature, ABiasIsBroadcast) {
  const std::vector<std::string> factors = {"f32[8, 6]", "f32[6, 4]"};
  for (const char* bias : {"f32[8, 4]", "f32[1, 4]", "f32[8, 1]", "f32[4]", "f32[1]", "f32[]"}) {
    EXPECT_EQ(result_of("mn + mk * kn -> mn", {bias, factors[0], factors[1]}), (Shape{8, 4}))
        << bias;
  }
  EXPECT_EQ(result_of("mn + mk * kn -> mn", {"f32[5]", factors[0], factors[1]}), kRefused);
}

TEST(Signature, AnOperandThatIsNotGivenHasNoDims) {
  const Signature clamp =
      signature_for("~..., ~..., ~... -> ...", {"f32[8]", "none", "f32[8]"}).value();
  EXPECT_FALSE(clamp.operands[1].is_given);
  EXPECT_TRUE(clamp.operands[1].term.factors.empty());
  EXPECT_EQ(moves_of(clamp), (std::vector<std::string>{"R, R, R -> R", "S(0), R, S(0) -> S(0)"}));
}

TEST(Signature, MarkedLettersStayWhole) {
  const Signature signature = signature_for("~bq! -> bq", {"f32[8, 6]"}).value();
  EXPECT_EQ(moves_of(signature), (std::vector<std::string>{"R -> R", "S(0) -> S(0)"}));
}

struct LayoutCase {
  std::string first, second;
  Shape stride;
};

// The strides are those that libtorch's sum of the two has.
TEST(Signature, PointwiseResultsLieAsLibtorchLaysThemOut) {
  const std::vector<LayoutCase> cases = {
      {"f32[8, 6]", "f32[8, 6]", {6, 1}},
      {"f32[3, 2] strides [1, 3]", "f32[3, 2] strides [1, 3]", {1, 3}},
      {"f32[4, 2, 3] strides [1, 12, 4]", "f32[4, 2, 3]", {1, 12, 4}},
      {"f32[2, 3] strides [1, 2]", "f32[2, 3]", {1, 2}},
      {"f32[2, 3]", "f32[2, 3] strides [1, 2]", {3, 1}},
      {"f32[3, 4] strides [1, 0]", "f32[4]", {4, 1}},
      {"f32[3, 4] strides [1, 3]", "f32[4]", {1, 3}},
      {"f32[4]", "f32[3, 4] strides [1, 3]", {1, 3}},
      {"f32[1, 4]", "f32[3, 1]", {4, 1}},
      {"f32[2, 4, 3] strides [12, 1, 4]", "f32[]", {12, 1, 4}},
      {"f32[2, 2, 3] strides [3, 12, 1]", "f32[2, 1, 3]", {3, 6, 1}},
      {"f32[2, 3] strides [6, 2]", "f32[2, 3] strides [6, 2]", {3, 1}},
      {"f32[0, 3]", "f32[1, 3]", {3, 1}},
      {"f32[0, 3] strides [1, 1]", "f32[0, 3]", {3, 1}},
      {"f32[2, 3, 4] strides [0, 1, 3]", "f32[1, 3, 4]", {12, 1, 3}},
  };
  constexpr RuleText kSum = "... + ... -> ...";
  for (const LayoutCase& one : cases) {
    const OpSchema schema = whole_call("add.Tensor", {one.first, one.second});
    const Signature signature = signature_of(kSum.form(), schema).value();
    EXPECT_EQ(result_stride(signature.results[0], signature, schema), one.stride)
        << one.first << " + " << one.second;
  }
}

TEST(Signature, OtherResultsAreRowMajorUnlessTheySayOtherwise) {
  const OpSchema schema = whole_call("mm", {"f32[8, 6] strides [1, 8]", "f32[6, 4]"});
  constexpr RuleText kProduct = "mk * kn -> mn";
  Signature signature = signature_of(kProduct.form(), schema).value();
  EXPECT_EQ(result_stride(signature.results[0], signature, schema), (Shape{4, 1}));
  signature.results[0].memory_order = {1, 0};
  EXPECT_EQ(result_stride(signature.results[0], signature, schema), (Shape{1, 8}));
}

}  // namespace signature_test
}  // namespace tegula
