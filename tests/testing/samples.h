// Samples of every operator that has a rule.
#pragma once

#include <vector>

#include "tegula/testing/sample.h"

namespace tegula {

// At least one per rule, more where arguments matter. All give a new tensor.
const std::vector<Sample>& rule_samples();

// Forms that follow the rule of another op: in place, out=, over lists, fused.
const std::vector<Sample>& other_form_samples();

}  // namespace tegula
