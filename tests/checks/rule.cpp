// Compiles if TEGULA_RULE is a rule.
#include "tegula/rules/rule_text.h"

constexpr tegula::RuleText kRule = TEGULA_RULE;
static_assert(kRule.form().operand_count > 0);
