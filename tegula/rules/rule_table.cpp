// Rules are shared and never changed: a call that found one keeps it while the table gets another.
#include "tegula/rules/rule_table.h"

#include <sstream>

namespace tegula {

void RuleTable::add(Rule rule) {
  const std::lock_guard lock(mutex_);
  std::string op = rule.op;
  rules_.insert_or_assign(std::move(op), std::make_shared<const Rule>(std::move(rule)));
  invalidate();
}

Rule rule_of(std::string op, std::string text, const RuleForm& form, Trait trait) {
  const auto signature = [form, trait](const OpSchema& schema) {
    std::optional<Signature> found = signature_of(form, schema);
    // Integers wrap: the greatest of them plus 1 is the least.
    const bool may_wrap = !schema.has(0) || !is_floating(schema.spec(0).meta().dtype());
    if (found && !may_wrap) found->trait = trait;
    return found;
  };
  return {std::move(op), std::move(text), signature, form};
}

void RuleTable::add(std::string op, RuleText text, Trait trait) {
  add(rule_of(std::move(op), std::string(text.text()), text.form(), trait));
}

void RuleTable::add_all(std::string_view ops, RuleText text, Trait trait) {
  std::istringstream names{std::string(ops)};
  for (std::string op; names >> op;) add(op, text, trait);
}

void RuleTable::add(std::string op, std::string name, SignatureOf signature, std::string example) {
  add(Rule{std::move(op), std::move(name), std::move(signature), {}, std::move(example)});
}

std::shared_ptr<const Rule> RuleTable::find(std::string_view op) const {
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(op);
  return found == rules_.end() ? nullptr : found->second;
}

std::vector<std::string> RuleTable::ops() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, rule] : rules_) names.push_back(name);
  return names;
}

}  // namespace tegula
