// The operators that Tegula knows, by family. One line per op; how to read it: rules/rule_text.h.
#pragma once

#include <vector>

#include "tegula/rules/rule_table.h"

namespace tegula {

// The table of all rules of this process, with those of Tegula in it. Rules added to it count from
// the next call on.
RuleTable& rule_table();

// A family adds its rules to a table.
struct RuleFamily {
  const char* name;
  void (*add_to)(RuleTable& rules);
};
const std::vector<RuleFamily>& rule_families();

namespace inner::families {

void add_pointwise(RuleTable& rules);
void add_pointwise_backward(RuleTable& rules);
void add_products(RuleTable& rules);
void add_reductions(RuleTable& rules);
void add_norms(RuleTable& rules);
void add_lookups(RuleTable& rules);
void add_losses(RuleTable& rules);
void add_attention(RuleTable& rules);
void add_joins(RuleTable& rules);
void add_indexing(RuleTable& rules);
void add_optimizers(RuleTable& rules);
void add_within(RuleTable& rules);
void add_matrices(RuleTable& rules);
void add_convolutions(RuleTable& rules);
void add_pooling(RuleTable& rules);
void add_resampling(RuleTable& rules);
void add_channels(RuleTable& rules);

}  // namespace inner::families
}  // namespace tegula
