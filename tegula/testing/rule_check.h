// RuleCheck: whether what a rule says about a sample is true, by brute force. Every legal move is
// played (played_call.h) and its joined results are compared with the op on the whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/rules/rule_table.h"
#include "tegula/testing/sample.h"

namespace tegula {

// What is wrong with the rule, one text per fault that names op, sample, move and ranks; empty if
// nothing is. Dims are cut evenly, by chance, and so that ranks are left without elements. It is a
// fault, too, if there is no rule or it does not cover the sample.
std::vector<std::string> faults_of_rule(const RuleTable& rules, const Sample& sample,
                                        std::int64_t ranks);

// Results whose strides the rule does not foresee. That is no fault: it costs a copy.
std::vector<std::string> unforeseen_strides(const RuleTable& rules, const Sample& sample);

}  // namespace tegula
