// The oracle: whether a rule of yours is true, by brute force. Link Tegula::testing.
//
//   RuleTable rules;
//   rules.add("mm", "mk * kn -> mn");
//   for (const std::string& fault : faults_of_rule(rules, {"mm", "f64[4, 6], f64[6, 5]"}, 3)) {
//     std::cout << fault << '\n';
//   }
//
//   testing/verify_rule.h  all of it for an operator, in one call
//   testing/sample.h       Sample: one call of an operator, written as text
//   testing/rule_check.h   what is wrong with a rule, on a sample
//   testing/move_search.h  moves that would be right and that the rule does not list
//   testing/parts.h        parts of a tensor as the ranks of one axis hold them
#pragma once

#include "tegula/testing/move_search.h"
#include "tegula/testing/parts.h"
#include "tegula/testing/rule_check.h"
#include "tegula/testing/sample.h"
#include "tegula/testing/verify_rule.h"
