// Every rule against brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "tegula/families/families.h"
#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"
#include "tegula/testing/rule_check.h"
#include "tests/testing/samples.h"

namespace tegula::inner {
namespace rules_test {

TEST(Rules, EveryRuleHasASample) {
  std::set<std::string> sampled;
  for (const Sample& sample : rule_samples()) {
    sampled.insert(operator_table().entry(operator_of(sample)).facts.rule);
  }
  for (const std::string& op : rule_table().ops()) {
    if (rule_table().find(op)->is_users) continue;
    if (!operator_of({op, ""}).hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    EXPECT_TRUE(sampled.contains(op)) << op << " has a rule; add a sample to samples.cpp";
  }
}

class RanksOfAnAxis : public testing::TestWithParam<int> {};

TEST_P(RanksOfAnAxis, GiveWhatTheRulesSay) {
  for (const auto& samples : {rule_samples(), edge_samples()}) {
    for (const Sample& sample : samples) {
      for (const std::string& fault : faults_of_rule(rule_table(), sample, GetParam())) {
        ADD_FAILURE() << fault;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RanksOfAnAxis, testing::Values(1, 2, 3, 4));

TEST(Rules, StridesThatRulesDoNotForesee) {
  for (const auto& samples : {rule_samples(), edge_samples()}) {
    for (const Sample& sample : samples) {
      for (const std::string& text : unforeseen_strides(rule_table(), sample)) {
        std::cout << text << "\n";
      }
    }
  }
}

// Wrong on purpose ------------------------------------------------------------------------------

bool is_caught(const RuleTable& rules, const Sample& sample, const std::string& move) {
  const std::vector<std::string> faults = faults_of_rule(rules, sample, 2);
  return std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
    return fault.find(to_string(sample)) != std::string::npos &&
           fault.find("on 2 ranks, " + move + ":") != std::string::npos;
  });
}

TEST(WrongRules, APointwiseInnerDimOfAProductIsCaught) {
  RuleTable rules;
  rules.add("mm", "mk * nk -> mn");
  const Sample square{"mm", "f64[4, 4], f64[4, 4]"};
  EXPECT_TRUE(is_caught(rules, square, "R, S(0) -> S(1)"));
  EXPECT_TRUE(is_caught(rules, square, "S(1), S(1) -> P(sum)"));
  EXPECT_FALSE(is_caught(rules, square, "S(0), R -> S(0)"));
}

TEST(WrongRules, ASoftmaxAlongACutDimIsCaught) {
  RuleTable rules;
  rules.add("_softmax", "~... -> ...");
  const Sample sample{"_softmax", "f64[4, 6], 1, false"};
  EXPECT_TRUE(is_caught(rules, sample, "S(1) -> S(1)"));
  EXPECT_FALSE(is_caught(rules, sample, "S(0) -> S(0)"));
}

TEST(WrongRules, AnExponentialOfSummandsIsCaught) {
  RuleTable rules;
  rules.add("exp", "... -> ...");
  EXPECT_TRUE(is_caught(rules, {"exp", "f64[4, 6]"}, "P(sum) -> P(sum)"));
  EXPECT_TRUE(is_caught(rules, {"exp", "f64[4, 6]"}, "P(avg) -> P(avg)"));
}

TEST(WrongRules, ASquareThatIsCalledIncreasingIsCaught) {
  RuleTable rules;
  rules.add("pow.Tensor_Scalar", "~... -> ...", Trait::Increasing);
  EXPECT_TRUE(is_caught(rules, {"pow.Tensor_Scalar", "f64[4, 6], 2"}, "P(max) -> P(max)"));
}

TEST(WrongRules, AMaximumThatIsSummedIsCaught) {
  RuleTable rules;
  rules.add("amax", "wrong", reduction({}));
  EXPECT_TRUE(is_caught(rules, {"amax", "f64[4, 6], [1]"}, "S(1) -> P(sum)"));
}

TEST(WrongRules, ARuleThatSaysTooFewResultsIsCaught) {
  RuleTable rules;
  rules.add("sort", "one result", along_dim(1, "~... -> ..."));
  EXPECT_TRUE(is_caught(rules, {"sort", "f64[4, 6], 1"}, "R -> R"));
}

TEST(WrongRules, ASampleThatNoRuleCoversIsCaught) {
  RuleTable rules;
  EXPECT_EQ(faults_of_rule(rules, {"exp", "f64[4]"}, 2),
            std::vector<std::string>{"exp(f64[4]): no rule covers it"});
}

}  // namespace rules_test
}  // namespace tegula::inner
