#include "tegula/rules/rule_table.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/ops/families.h"
#include "tegula/rules/rule_example.h"
#include "tests/rules/calls.h"

namespace tegula::inner {
namespace rule_table_test {

TEST(RuleTable, ANewRuleReplacesTheOldOneAndChangesTheVersion) {
  RuleTable rules;
  rules.add("op", "... -> ...");
  const std::uint64_t version = rules.version();
  const auto old = rules.find("op");
  rules.add("op", "~... -> ...");
  EXPECT_NE(rules.version(), version);
  EXPECT_EQ(rules.find("op")->text, "~... -> ...");
  EXPECT_EQ(old->text, "... -> ...");  // whoever holds it may go on
  EXPECT_EQ(rules.ops(), (std::vector<std::string>{"op"}));
}

TEST(RuleTable, AnOpWithoutRuleIsNotFound) {
  RuleTable rules;
  rules.add_all("a  b\n c", "... -> ...");
  EXPECT_EQ(rules.find("op"), nullptr);
  EXPECT_EQ(rules.ops(), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(RuleTable, EveryRuleHasAnExampleThatItCovers) {
  const DeviceMesh mesh({{"axis", 2}});
  const RuleTable& rules = rule_table();
  for (const std::string& op : rules.ops()) {
    const auto rule = rules.find(op);
    ASSERT_NE(example_arguments(*rule), "") << op;
    const OpSchema schema = example_call(*rule, mesh);
    const auto signature = rule->signature(schema);
    ASSERT_TRUE(signature) << op << "(" << example_arguments(*rule) << ")";
    EXPECT_EQ(signature->operands.size(), schema.tensors.size()) << op;
    EXPECT_GT(axis_moves(*signature).size(), op == "any" || op == "all" ? 0U : 1U) << op;
  }
}

TEST(RuleTable, EveryRuleBelongsToOneFamily) {
  std::size_t rules = 0;
  for (const RuleFamily& family : rule_families()) {
    RuleTable of_family;
    family.add_to(of_family);
    rules += of_family.ops().size();
  }
  EXPECT_EQ(rules, rule_table().ops().size());
}

OpSchema example(std::string text) {
  RuleTable rules;
  rules.add("op", "an example", [](const OpSchema&) { return std::nullopt; }, std::move(text));
  return example_call(*rules.find("op"), DeviceMesh({{"axis", 2}}));
}

TEST(RuleExample, ReadsEveryKindOfArgument) {
  const OpSchema schema = example(
      "f32[8, 6], none, weight=i64[8], [f32[2], f32[]], 3, dim=[1, -1], [], flag=true, "
      "mode=full");
  EXPECT_EQ(schema.arguments,
            (std::vector<Argument>{argument::Tensor{0}, argument::None{}, argument::Tensor{1},
                                   argument::TensorList{2, 2}, std::int64_t{3}, Ints{1, -1}, Ints{},
                                   true, argument::Text{"full"}}));
  ASSERT_EQ(schema.tensors.size(), 4U);
  EXPECT_EQ(to_string(*schema.tensors[1]), "i64[8] on (axis=2) as [R]");
}

TEST(RuleExample, RefusesWhatIsNoCall) {
  EXPECT_THROW(example("f32[8"), UsageError);
  EXPECT_THROW(example("tensor"), UsageError);
  EXPECT_THROW(example("f32[8] f32[8]"), UsageError);
}

TEST(RuleExample, OfATextHasAnotherSizeForEachLetter) {
  RuleTable rules;
  rules.add("op", "mn + mk * kn -> mn");
  rules.add("many", "~...a, ~(), ~b1 -> ...");
  EXPECT_EQ(example_arguments(*rules.find("op")), "f32[8, 10], f32[8, 12], f32[12, 10]");
  EXPECT_EQ(example_arguments(*rules.find("many")), "f32[4, 6, 8], f32[], f32[10, 1]");
}

TEST(OpSchema, ArgumentsAreReadAsWhatTheyAre) {
  const OpSchema schema = whole_call("op", {"f32[8]"}, {argument::Tensor{0}, Ints{1}, true});
  EXPECT_EQ(schema.tensor(0), 0U);
  EXPECT_EQ(schema.ints(1), (Ints{1}));
  EXPECT_TRUE(schema.flag(2));
  EXPECT_TRUE(schema.is_none(3));
  EXPECT_EQ(to_string(schema), "op(f32[8] as [R])");
  try {
    schema.integer(1);
    FAIL() << "a list was read as a number";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.sentence(), "a rule reads an argument as another kind of value than it is");
  }
}

}  // namespace rule_table_test
}  // namespace tegula::inner
