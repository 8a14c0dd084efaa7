// RuleTable: which rule an operator has. A rule is a text (rule_text.h), or a function from the
// call to its signature for operators whose dims depend on their arguments.
//
//   rules.add("mm", "mk * kn -> mn");
//   rules.add("exp", "~... -> ...", Trait::Increasing);
//   rules.add("sum.dim_IntList", "sum over dims", reduction(sum), "f32[8, 6], dim=[1]");
//
// In-place and out= forms need no rule of their own: dispatch asks for that of the plain form.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/rules/rule_text.h"
#include "tegula/rules/signature.h"

namespace tegula {

// None: the rule does not cover these arguments.
using SignatureOf = std::function<std::optional<Signature>(const OpSchema&)>;

struct Rule {
  std::string op;
  std::string text;  // as written; of a function: what it is called
  SignatureOf signature;
  std::optional<RuleForm> form = {};  // of a text
  std::string example = {};           // of a function: arguments that show it (rule_example.h)
  bool is_users = false;              // outranks what Tegula itself knows of the op
};

// The rule that a text is.
Rule rule_of(std::string op, std::string text, const RuleForm& form, Trait trait = Trait::None);

// Any thread may use it.
class RuleTable {
 public:
  // Replaces a rule of the same name.
  void add(std::string op, RuleText text, Trait trait = Trait::None);
  // One rule for several ops: their names, with blanks between.
  void add_all(std::string_view ops, RuleText text, Trait trait = Trait::None);
  void add(std::string op, std::string name, SignatureOf signature, std::string example = {});

  void add(Rule rule);
  // What was decided so far no longer counts.
  void invalidate() { version_.fetch_add(1, std::memory_order_acq_rel); }

  // Null if the op has none.
  std::shared_ptr<const Rule> find(std::string_view op) const;
  // Names of all ops that have one, sorted.
  std::vector<std::string> ops() const;
  // Changes whenever a rule is added: what was decided before no longer counts.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Rule>, std::less<>> rules_;
  std::atomic<std::uint64_t> version_ = 1;
};

}  // namespace tegula
