#include "tegula/testing/verify_rule.h"

#include "tegula/families/families.h"
#include "tegula/operators/user_decompositions.h"
#include "tegula/ops/families.h"
#include "tegula/testing/on_ranks.h"
#include "tegula/testing/rule_check.h"

namespace tegula {

using namespace inner;

RuleVerdict verify_rule(const std::string& op, const std::vector<std::string>& samples) {
  RuleVerdict verdict;
  const auto add = [&](const std::vector<std::string>& faults) {
    verdict.faults.insert(verdict.faults.end(), faults.begin(), faults.end());
  };
  if (samples.empty()) verdict.faults.push_back(op + ": there are no samples");
  for (const std::string& arguments : samples) {
    const Sample sample{op, arguments};
    claim_operators();
    if (!user_decompositions().find(rule_name(toString(operator_of(sample).operator_name())))) {
      for (std::int64_t ranks = 1; ranks <= 4; ++ranks) {
        add(faults_of_rule(rule_table(), sample, ranks));
      }
    }
    for (const std::vector<MeshAxis>& axes :
         {std::vector<MeshAxis>{{"a", 2}}, {{"a", 3}}, {{"a", 2}, {"b", 2}}}) {
      add(faults_on_ranks(sample, axes));
    }
  }
  return verdict;
}

}  // namespace tegula
