#include "tegula/tensor/register_sharding.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/families/families.h"
#include "tegula/operators/user_decompositions.h"
#include "tegula/ops/families.h"

namespace tegula {

using namespace inner;

namespace {

c10::OperatorHandle operator_named(const std::string& op) {
  c10::OperatorName name = operator_name_of(op);
  if (name.overload_name == "default") name.overload_name.clear();  // as Python calls it
  if (const auto found = c10::Dispatcher::singleton().findSchema(name)) return *found;
  std::string overloads;
  for (const c10::OperatorName& other : c10::Dispatcher::singleton().getAllOpNames()) {
    if (other.name == name.name) overloads += (overloads.empty() ? "" : ", ") + toString(other);
  }
  throw UsageError("there is no such operator")
      .fact("operator", toString(name))
      .hint(overloads.empty() ? "register the operator with libtorch first, or check its name"
                              : "say which overload: " + overloads);
}

[[noreturn]] void refuse(const OperatorEntry& entry, const std::string& why,
                         const std::string& hint) {
  throw UsageError("a rule for this operator would never be used: " + why)
      .fact("operator", entry.facts.name)
      .hint(hint);
}

const OperatorEntry& entry_for(const std::string& op) {
  const OperatorEntry& entry = operator_table().entry(operator_named(op));
  if (entry.facts.viewed)
    refuse(entry, "it gives a view", "views follow the tensor that they show");
  if (entry.op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    refuse(entry, "libtorch composes it of others",
           "give the operators that it is composed of a rule");
  }
  return entry;
}

std::string name_for_rule(const std::string& op) {
  const OperatorEntry& entry = entry_for(op);
  if (entry.facts.is_random) {
    refuse(entry, "it draws random numbers", "give it a decomposition instead");
  }
  return rule_name(entry.facts.name);
}

void add_users(Rule rule) {
  rule.is_users = true;
  user_decompositions().set(rule.op, nullptr);
  rule_table().add(std::move(rule));
}

// More calls of an op within its own decomposition than anybody means.
constexpr int kMostNested = 100;

class Nested {
 public:
  Nested() { ++depth_; }
  ~Nested() { --depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  static int depth() { return depth_; }

 private:
  static inline thread_local int depth_ = 0;
};

Recipe checked(const OperatorEntry& entry, Decompose decomposition) {
  return [&entry, decompose = std::move(decomposition)](Arguments arguments) -> Values {
    const Nested nested;
    if (Nested::depth() > kMostNested) {
      throw UsageError("a decomposition calls its own operator without end")
          .fact("operator", entry.facts.name)
          .hint("make it of other operators");
    }
    Values results = decompose({arguments.begin(), arguments.end()});
    const std::size_t expected = entry.op.schema().returns().size();
    if (results.size() == expected) return results;
    throw UsageError("a decomposition gives another number of results than its operator")
        .fact("operator", entry.facts.name)
        .fact("results", std::to_string(results.size()) + " instead of " + std::to_string(expected))
        .hint("give one value per result of the operator's signature");
  };
}

}  // namespace

void register_sharding(const std::string& op, RuleText text, Trait trait) {
  add_users(rule_of(name_for_rule(op), std::string(text.text()), text.form(), trait));
}

void register_sharding_text(const std::string& op, const std::string& text, Trait trait) {
  add_users(rule_of(name_for_rule(op), text, parse_rule(text), trait));
}

void register_sharding(const std::string& op, SignatureOf rule) {
  add_users({name_for_rule(op), "a function", std::move(rule)});
}

void register_decomposition(const std::string& op, Decompose decomposition) {
  const OperatorEntry& entry = entry_for(op);
  const std::string name = rule_name(entry.facts.name);
  user_decompositions().set(name, checked(entry, std::move(decomposition)));
  rule_table().invalidate();
}

}  // namespace tegula
