// What the rules say about a sample.
#pragma once

#include <optional>

#include "tegula/rules/rule_table.h"
#include "tegula/testing/played_call.h"

namespace tegula::inner {

// None if there is no rule or it does not cover the call. InternalError if the rule counts other
// operands than the call has.
std::optional<Signature> signature_for(const RuleTable& rules, const PlayedCall& call);

}  // namespace tegula::inner
