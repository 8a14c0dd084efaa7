#include "tegula/testing/sample_rule.h"

#include "tegula/base/error.h"

namespace tegula::inner {

std::optional<Signature> signature_for(const RuleTable& rules, const PlayedCall& call) {
  const std::shared_ptr<const Rule> rule = rules.find(call.schema().op);
  if (!rule) return std::nullopt;
  std::optional<Signature> signature = rule->signature(call.schema());
  if (signature && signature->operands.size() != call.schema().tensors.size()) {
    throw InternalError("a rule sees another number of tensors than the call has")
        .fact("rule", rule->op + ": " + rule->text)
        .fact("call", to_string(call.schema()));
  }
  return signature;
}

}  // namespace tegula::inner
