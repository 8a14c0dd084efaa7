#include "tegula/propagate/sharding_propagator.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/ops/families.h"
#include "tests/rules/calls.h"

namespace tegula {
namespace sharding_propagator_test {

std::optional<OutputSharding> decide(const OpSchema& schema) {
  return ShardingPropagator(rule_table()).propagate(schema);
}

// "[S(0)], [R] -> [S(0)]": where operands must be, and how results are distributed then; "none".
std::string decision(const OpSchema& schema) {
  const auto decided = decide(schema);
  if (!decided) return "none";
  const auto text_of = [](const DTensorSpec& spec) {
    const std::string text = to_string(spec);
    return text.substr(text.find(" as ") + 4);
  };
  std::vector<std::string> operands;
  for (const auto& spec : decided->operands) operands.push_back(spec ? text_of(*spec) : "none");
  std::vector<std::string> results;
  for (const ResultSharding& result : decided->results) {
    for (const auto& spec : schema.tensors) {
      if (!spec) continue;
      results.push_back(text_of(result.spec(spec->mesh(), DType::F32)));
      break;
    }
  }
  return join(operands) + " -> " + join(results);
}

// The same tensors with other placements: {"f32[8, 6]", ...}, {"S(0)", ...}.
OpSchema on(const std::string& mesh, std::string op, const std::vector<std::string>& tensors,
            const std::vector<std::string>& placements, std::vector<Argument> arguments = {}) {
  std::vector<std::string> specs;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    specs.push_back(tensors[k] + " on (" + mesh + ") as [" + placements[k] + "]");
  }
  return call(std::move(op), specs, std::move(arguments));
}

// Megatron's pair of linear layers ------------------------------------------------------------

TEST(Propagate, ColumnCutWeightNeedsNoCommunication) {
  EXPECT_EQ(decision(on("tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {"R", "S(1)"})),
            "[R], [S(1)] -> [S(1)]");
  EXPECT_EQ(
      decision(on("tp=2", "addmm", {"f32[4]", "f32[8, 6]", "f32[6, 4]"}, {"S(0)", "R", "S(1)"})),
      "[S(0)], [R], [S(1)] -> [S(1)]");
}

TEST(Propagate, RowCutWeightOwesASum) {
  EXPECT_EQ(decision(on("tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {"S(1)", "S(0)"})),
            "[S(1)], [S(0)] -> [P(sum)]");
  // the bias, replicated, is held by one rank only
  EXPECT_EQ(
      decision(on("tp=2", "addmm", {"f32[4]", "f32[8, 6]", "f32[6, 4]"}, {"R", "S(1)", "S(0)"})),
      "[P(sum)], [S(1)], [S(0)] -> [P(sum)]");
}

TEST(Propagate, DataAndTensorParallelAxesChooseByThemselves) {
  EXPECT_EQ(decision(on("dp=2, tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {"S(0), R", "R, S(1)"})),
            "[S(0), R], [R, S(1)] -> [S(0), S(1)]");
  EXPECT_EQ(decision(on("dp=2, tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {"S(0), S(1)", "R, S(0)"})),
            "[S(0), S(1)], [R, S(0)] -> [S(0), P(sum)]");
}

// Which move ----------------------------------------------------------------------------------

TEST(Propagate, WhatIsReplicatedStaysSo) {
  EXPECT_EQ(decision(on("tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {"R", "R"})), "[R], [R] -> [R]");
}

TEST(Propagate, AReplicatedOperandIsSlicedToFitACutOne) {
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"S(0)", "R"})),
            "[S(0)], [S(0)] -> [S(0)]");
}

TEST(Propagate, OfTwoCutsTheCheaperMoves) {
  EXPECT_EQ(decision(on("tp=4", "add.Tensor", {"f32[64, 64]", "f32[64]"}, {"S(0)", "S(0)"})),
            "[S(0)], [R] -> [S(0)]");
  EXPECT_EQ(decision(on("tp=4", "add.Tensor", {"f32[64]", "f32[64, 64]"}, {"S(0)", "S(0)"})),
            "[R], [S(0)] -> [S(0)]");
}

TEST(Propagate, CutsOfEqualTensorsMeetInOne) {
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[64, 64]", "f32[64, 64]"}, {"S(0)", "S(1)"})),
            "[S(0)], [S(0)] -> [S(0)]");
}

TEST(Propagate, AResidualReducesWhatIsOwed) {
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"R", "P(sum)"})),
            "[R], [R] -> [R]");
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"S(0)", "P(sum)"})),
            "[S(0)], [S(0)] -> [S(0)]");
}

TEST(Propagate, DebtsThatPassStay) {
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"P(sum)", "P(sum)"})),
            "[P(sum)], [P(sum)] -> [P(sum)]");
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"P(avg)", "R"})),
            "[P(avg)], [R] -> [P(avg)]");
  EXPECT_EQ(decision(on("tp=2", "mul.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"P(sum)", "R"})),
            "[P(sum)], [R] -> [P(sum)]");
  EXPECT_EQ(decision(on("tp=2", "neg", {"f32[8, 6]"}, {"P(max)"})), "[P(max)] -> [P(min)]");
  EXPECT_EQ(decision(on("tp=2", "mul.Scalar", {"f32[8, 6]"}, {"M(9)"})), "[P(sum)] -> [P(sum)]");
}

TEST(Propagate, DebtsThatDoNotPassAreReduced) {
  EXPECT_EQ(decision(on("tp=2", "relu", {"f32[8, 6]"}, {"P(sum)"})), "[R] -> [R]");
  EXPECT_EQ(decision(on("tp=2", "mul.Tensor", {"f32[8]", "f32[8]"}, {"P(sum)", "P(sum)"})),
            "[P(sum)], [R] -> [P(sum)]");
  EXPECT_EQ(decision(on("tp=2", "neg", {"f32[8, 6]"}, {"P(product)"})), "[R] -> [R]");
}

TEST(Propagate, ReductionsLeaveADebtWhereTheirDimIsCut) {
  const std::vector<Argument> over_last = {argument::Tensor{0}, Ints{1}, false};
  EXPECT_EQ(decision(on("a=2, b=2", "sum.dim_IntList", {"f32[8, 6]"}, {"S(0), S(1)"}, over_last)),
            "[S(0), S(1)] -> [S(0), P(sum)]");
  EXPECT_EQ(decision(on("a=2, b=2", "amax", {"f32[8, 6]"}, {"P(sum), S(1)"}, over_last)),
            "[R, S(1)] -> [R, P(max)]");
}

TEST(Propagate, ACutOfADimThatMustStayWholeMovesToAnother) {
  const std::vector<Argument> along_last = {argument::Tensor{0}, std::int64_t{-1}, false};
  EXPECT_EQ(decision(on("a=2", "sort", {"f32[8, 6]"}, {"S(1)"}, along_last)),
            "[S(0)] -> [S(0)], [S(0)]");
  EXPECT_EQ(decision(on("a=2, b=2", "_softmax", {"f32[8, 6]"}, {"S(0), S(1)"}, along_last)),
            "[S(0), S(0)] -> [S(0), S(0)]");
  EXPECT_EQ(decision(on("a=2", "sort", {"f32[6, 4, 8]"}, {"S(2, sizes=[1, 7])"}, along_last)),
            "[S(0)] -> [S(0)], [S(0)]");
}

TEST(Propagate, OtherOperandsAreSlicedForACutThatMoves) {
  const std::vector<Argument> along_last = {argument::Tensor{0}, argument::Tensor{1},
                                            std::int64_t{-1}, argument::Other{}};
  EXPECT_EQ(decision(on("a=2", "_softmax_backward_data", {"f32[8, 6]", "f32[8, 6]"}, {"S(1)", "R"},
                        along_last)),
            "[S(0)], [S(0)] -> [S(0)]");
}

TEST(Propagate, ADimThatMustStayWholeIsGatheredWhereNoOtherHasEnoughElements) {
  const std::vector<Argument> along_last = {argument::Tensor{0}, std::int64_t{-1}, false};
  EXPECT_EQ(decision(on("a=4", "sort", {"f32[8]"}, {"S(0)"}, along_last)), "[R] -> [R], [R]");
  EXPECT_EQ(decision(on("a=4", "sort", {"f32[3, 8]"}, {"S(1)"}, along_last)), "[R] -> [R], [R]");
  EXPECT_EQ(decision(on("a=4", "sort", {"f32[3, 5, 8]"}, {"S(2)"}, along_last)),
            "[S(1)] -> [S(1)], [S(1)]");
}

TEST(Propagate, WhatIsWrittenIsNotCutOtherwise) {
  OpSchema schema = on("a=2", "cumsum", {"f32[8, 6]"}, {"S(1)"},
                       {argument::Tensor{0}, std::int64_t{1}, argument::None{}});
  schema.written = {0};
  EXPECT_EQ(decision(schema), "none");
}

// A choice among all combinations of its axes' moves would not end.
TEST(Propagate, EachOfManyAxesChoosesByItself) {
  std::vector<MeshAxis> axes;
  for (int k = 0; k < 20; ++k) axes.push_back({"a" + std::to_string(k), 2});
  const DeviceMesh mesh(axes);
  Placements cut(20, Replicate());
  for (std::size_t axis = 0; axis < 20; axis += 2) cut[axis] = Shard(axis % 4 == 0 ? 0 : 1);
  const DTensorSpec left(mesh, cut, TensorMeta({1024, 1024}, DType::F32));
  const DTensorSpec right(mesh, Placements(20, Replicate()), left.meta());
  const auto decided = decide({"mm", {}, {left, right}});
  ASSERT_TRUE(decided);
  for (std::size_t axis = 0; axis < 20; ++axis) {
    const Placement debt = Partial(), rows = Shard(0), whole = Replicate();
    EXPECT_EQ(decided->results[0].placements[axis], axis % 2 ? whole : axis % 4 ? debt : rows);
  }
}

TEST(Propagate, AnAxisOfATensorWithoutThatDimIsLeftAlone) {
  EXPECT_EQ(decision(on("a=2, b=3", "mul.Tensor", {"f32[8, 6]", "f32[]"}, {"S(0), S(1)", "R, R"})),
            "[S(0), S(1)], [R, R] -> [S(0), S(1)]");
}

// The whole product has 1 MiB, which is more than it takes to gather the first operand's tile of
// 512 KiB; but dp cuts it 64 ways.
TEST(Propagate, ADebtIsAsLargeAsTheTileThatOwesIt) {
  const std::vector<std::string> tensors = {"f32[4096, 4096]", "f32[4096, 64]"};
  EXPECT_EQ(decision(on("dp=64, tp=2", "mm", tensors, {"S(0), S(1)", "R, S(1)"})),
            "[S(0), S(1)], [R, S(0)] -> [S(0), P(sum)]");
}

TEST(Propagate, ADebtCountsTheBytesOfItsElements) {
  const auto decided = [&](const std::string& type) {
    return decision(
        on("tp=2", "mm", {type + "[1024, 1024]", type + "[1024, 1024]"}, {"S(1)", "S(1)"}));
  };
  EXPECT_EQ(decided("f32"), decided("f64"));
  EXPECT_EQ(decided("f32"), decided("bf16"));
}

// What is written ------------------------------------------------------------------------------

TEST(Propagate, WhatIsWrittenStaysWhereItIs) {
  OpSchema schema = on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"R", "S(0)"});
  schema.written = {0};
  EXPECT_EQ(decision(schema), "[R], [R] -> [R]");
  schema = on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"S(1)", "S(0)"});
  schema.written = {0};
  EXPECT_EQ(decision(schema), "[S(1)], [S(1)] -> [S(1)]");
  schema = on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {"P(sum)", "P(sum)"});
  schema.written = {0};
  EXPECT_EQ(decision(schema), "[P(sum)], [P(sum)] -> [P(sum)]");
}

TEST(Propagate, AWriteThatNoMoveAllowsIsNotDecided) {
  OpSchema schema = on("tp=2", "relu", {"f32[8, 6]"}, {"P(sum)"});
  schema.written = {0};
  EXPECT_EQ(decision(schema), "none");
  schema = on("tp=2", "add.Tensor", {"f32[6]", "f32[8, 6]"}, {"R", "R"});
  schema.written = {0};  // the result is larger than what it is written to
  EXPECT_EQ(decision(schema), "none");
}

TEST(Propagate, AnOutTensorSaysWhereTheResultGoes) {
  OpSchema schema = on("tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {"R", "R"});
  schema.out = {parse_spec("f32[8, 4] on (tp=2) as [S(0)]")};
  EXPECT_EQ(decision(schema), "[S(0)], [R] -> [S(0)]");
  schema.out = {parse_spec("f32[8, 4] on (tp=2) as [S(0, sizes=[1, 7])]")};
  EXPECT_EQ(decision(schema), "[S(0, sizes=[1, 7])], [R] -> [S(0, sizes=[1, 7])]");
  schema.out = {parse_spec("f32[4, 8] on (tp=2) as [S(0)]")};
  EXPECT_EQ(decision(schema), "none");
}

// How a factor is cut ---------------------------------------------------------------------------

TEST(Propagate, RaggedAndBlockwiseCutsAreCarriedOver) {
  const std::string ragged = "S(0, sizes=[1, 7])";
  EXPECT_EQ(decision(on("tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {ragged, "R"})),
            "[" + ragged + "], [R] -> [" + ragged + "]");
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {ragged, "R"})),
            "[" + ragged + "], [" + ragged + "] -> [" + ragged + "]");
  EXPECT_EQ(decision(on("tp=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {"S(1, blocks=2)", "R"})),
            "[S(1, blocks=2)], [S(0, blocks=2)] -> [P(sum)]");
}

TEST(Propagate, TheLargestTileLeads) {
  const std::string ragged = "S(0, sizes=[1, 7])";
  EXPECT_EQ(decision(on("tp=2", "add.Tensor", {"f32[8]", "f32[8]"}, {"S(0)", ragged})),
            "[" + ragged + "], [" + ragged + "] -> [" + ragged + "]");
  EXPECT_EQ(decision(on("tp=2", "mul.Tensor", {"f32[8, 1]", "f32[8, 64]"}, {ragged, "S(0)"})),
            "[S(0)], [S(0)] -> [S(0)]");
}

TEST(Propagate, WhatIsWrittenLeadsHoweverSmall) {
  const std::string ragged = "S(0, sizes=[1, 7])";
  OpSchema schema = on("tp=2", "add.Tensor", {"f32[8]", "f32[8]"}, {"S(0)", ragged});
  schema.written = {0};
  EXPECT_EQ(decision(schema), "[S(0)], [S(0)] -> [S(0)]");
}

TEST(Propagate, ShardOrdersAreCarriedOver) {
  const std::string turned = "S(0)[1], S(0)[0]";
  EXPECT_EQ(decision(on("a=2, b=2", "mm", {"f32[8, 6]", "f32[6, 4]"}, {turned, "R, R"})),
            "[" + turned + "], [R, R] -> [" + turned + "]");
  EXPECT_EQ(decision(on("a=2, b=2", "add.Tensor", {"f32[8, 6]", "f32[8, 6]"}, {turned, "R, R"})),
            "[" + turned + "], [" + turned + "] -> [" + turned + "]");
}

TEST(Propagate, AxesThatNoOperandHasTogetherCutInTheMeshsOrder) {
  EXPECT_EQ(decision(on("a=2, b=2", "add.Tensor", {"f32[8]", "f32[8]"}, {"S(0), R", "R, S(0)"})),
            "[S(0), S(0)], [S(0), S(0)] -> [S(0), S(0)]");
}

TEST(Propagate, WhereElementsAreNeededADimWithEmptyShardsStaysWhole) {
  const std::vector<Argument> over_first = {argument::Tensor{0}, Ints{0}, false};
  EXPECT_EQ(decision(on("tp=4", "amax", {"f32[8, 6]"}, {"S(0)"}, over_first)),
            "[S(0)] -> [P(max)]");
  EXPECT_EQ(decision(on("tp=4", "amax", {"f32[3, 8]"}, {"S(0)"}, over_first)), "[S(1)] -> [S(0)]");
  EXPECT_EQ(decision(on("tp=4", "amax", {"f32[3, 2]"}, {"S(0)"}, over_first)), "[R] -> [R]");
  EXPECT_EQ(decision(on("tp=4", "sum.dim_IntList", {"f32[3, 6]"}, {"S(0)"}, over_first)),
            "[S(0)] -> [P(sum)]");
}

// Other parts of a decision -----------------------------------------------------------------------

TEST(Propagate, ALookupSaysWhichDimIsCut) {
  const auto decided = decide(on("tp=2", "embedding", {"f32[10, 6]", "i64[3]"}, {"S(0)", "R"}));
  ASSERT_TRUE(decided && decided->lookup);
  EXPECT_EQ(decided->lookup->operand, 0U);
  EXPECT_EQ(decided->lookup->dim, 0U);
  EXPECT_EQ(to_string(decided->results[0].placements), "[M(10)]");
  EXPECT_FALSE(decide(on("tp=2", "embedding", {"f32[10, 6]", "i64[3]"}, {"S(1)", "R"}))->lookup);
}

TEST(Propagate, SizeArgumentsAreCutAsTheResultIs) {
  const OpSchema schema = on("tp=2", "slice_backward", {"f32[8, 2]"}, {"S(0)"},
                             {argument::Tensor{0}, Ints{8, 6}, std::int64_t{1}});
  const auto decided = decide(schema);
  ASSERT_TRUE(decided && decided->size_arguments.size() == 1);
  EXPECT_EQ(decided->size_arguments[0].first, 1U);
  EXPECT_EQ(to_string(decided->size_arguments[0].second.placements), "[S(0)]");
}

TEST(Propagate, AnOperandThatStaysIsTheSameSpec) {
  const OpSchema schema = call("relu", {"f32[8, 6] strides [1, 8] on (tp=2) as [S(0)]"});
  const auto decided = decide(schema);
  ASSERT_TRUE(decided);
  EXPECT_EQ(decided->operands[0], schema.tensors[0]);
  EXPECT_EQ(decided->results[0].stride, (Shape{1, 8}));
}

TEST(Propagate, OperandsThatAreNotGivenStaySo) {
  EXPECT_EQ(decision(call("clamp.Tensor",
                          {"f32[8] on (tp=2) as [S(0)]", "none", "f32[] on (tp=2) as [R]"})),
            "[S(0)], none, [R] -> [S(0)]");
}

TEST(Propagate, WithoutARuleThereIsNoDecision) {
  EXPECT_EQ(decision(on("tp=2", "nothing", {"f32[8]"}, {"R"})), "none");
  EXPECT_EQ(decision(on("tp=2", "mm", {"f32[8, 6]", "f32[5, 4]"}, {"R", "R"})), "none");
}

TEST(Propagate, ARuleAddedAnewIsTheOneThatCounts) {
  RuleTable rules;
  const ShardingPropagator propagator(rules);
  const OpSchema schema = on("tp=2", "op", {"f32[8]"}, {"P(sum)"});
  rules.add("op", "... -> ...");
  EXPECT_EQ(to_string(propagator.propagate(schema)->results[0].placements), "[P(sum)]");
  rules.add("op", "~... -> ...");
  EXPECT_EQ(to_string(propagator.propagate(schema)->results[0].placements), "[R]");
}

TEST(Propagate, DebtsOfDifferentKindsAreNotMade) {
  RuleTable rules;
  rules.add("op", "~mk -> m", Trait::Increasing);
  const OpSchema schema = on("a=2, b=2", "op", {"f32[8, 6]"}, {"P(max), S(1)"});
  EXPECT_FALSE(ShardingPropagator(rules).propagate(schema));
}

TEST(Propagate, ARuleThatMiscountsTensorsIsNamed) {
  RuleTable rules;
  rules.add("op", "wrong", [](const OpSchema&) { return Signature(); });
  try {
    ShardingPropagator(rules).propagate(on("tp=2", "op", {"f32[8]"}, {"R"}));
    FAIL() << "the rule was believed";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.sentence(), "a rule sees another number of tensors than the call has");
    EXPECT_EQ(error.facts()[0].second, "op: wrong");
  }
}

}  // namespace sharding_propagator_test
}  // namespace tegula
