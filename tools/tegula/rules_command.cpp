// The rules of operators, with the moves that one axis may make in an example call; and of views.
#include <algorithm>
#include <map>
#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/overloaded.h"
#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/ops/families.h"
#include "tegula/rules/axis_moves.h"
#include "tegula/rules/rule_example.h"
#include "tools/tegula/commands.h"
#include "tools/tegula/view_rules.h"

namespace tegula::cli {

using namespace inner;

namespace {

// Finding ops ---------------------------------------------------------------------------------

// "sum.dim_IntList" -> "sum"
std::string base_of(const std::string& op) { return op.substr(0, op.find('.')); }

// How many letters have to be changed, put in or left out.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

// Names that differ in at most a third of the letters; empty if there are none.
std::string nearest_to(const std::string& name, const std::vector<std::string>& ops) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& op : ops) {
    const std::size_t letters = distance(name, base_of(op));
    if (3 * letters <= name.size()) ranked.emplace_back(letters, op);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min<std::size_t>(ranked.size(), 3));
  std::vector<std::string> names;
  for (const auto& [letters, op] : ranked) names.push_back(op);
  return join(names);
}

// The op of this name; otherwise its overloads, with a leading _ if there are none without. None if
// no op is called so.
std::vector<std::string> ops_named(const std::string& name, const std::vector<std::string>& ops) {
  for (const std::string& wanted : {name, "_" + name}) {
    std::vector<std::string> found;
    for (const std::string& op : ops) {
      if (op == wanted || base_of(op) == wanted) found.push_back(op);
    }
    if (!found.empty()) return found;
  }
  return {};
}

// Not every op has a rule; a name that is nearly one that has is taken for a mistake.
void show_no_rule(const std::string& name, const std::vector<std::string>& ops, std::ostream& out) {
  const std::string near = nearest_to(name, ops);
  if (!near.empty()) {
    throw UsageError("no rule is known for " + in_quotes(name))
        .hint("near to it: " + near + "; tegula rules lists them all");
  }
  out << "op      " << name << "\nno rule: gathers; every rank computes the whole\n"
      << "        (unless libtorch makes the op of others, which have their own rules)\n";
}

// One rule ------------------------------------------------------------------------------------

// What a factor is called: its letter in the rule's text, or the dim of the first operand with it.
std::string name_of(Factor factor, const Signature& signature, const Rule& rule) {
  for (std::size_t k = 0; k < signature.operands.size(); ++k) {
    const std::vector<Factor>& factors = signature.operands[k].term.factors;
    const auto found = std::find(factors.begin(), factors.end(), factor);
    if (found == factors.end()) continue;
    const auto from_end = static_cast<std::size_t>(factors.end() - found);
    if (rule.form && rule.form->operands[k].count >= from_end) {
      return {rule.form->operands[k].letters[rule.form->operands[k].count - from_end]};
    }
    const std::string dim = "dim " + std::to_string(found - factors.begin());
    return k == 0 ? dim : dim + " of operand " + std::to_string(k + 1);
  }
  return "a dim of the results";
}

std::string debt_of(const Placement& result) {
  return std::visit(
      Overloaded{
          [](const Replicate&) { return std::string(); },
          [](const Shard&) { return std::string(); },
          [](const Partial& partial) {
            return ": a " + std::string(tegula::name_of(partial.op())) + " is owed";
          },
          [](const MaskPartial&) { return std::string(": each rank looks up what it has"); },
      },
      result);
}

std::string debts_of(const AxisMove& move) {
  for (const Placement& result : move.results) {
    if (owed_reduction(result)) return debt_of(result);
  }
  return "";
}

std::string remark_on(const AxisMove& move, const Signature& signature, const Rule& rule) {
  if (move.cut != kNoFactor) {
    return name_of(move.cut, signature, rule) + " is cut" + debts_of(move);
  }
  std::vector<std::string> owing;
  std::optional<ReduceOp> op;
  for (std::size_t k = 0; k < move.operands.size(); ++k) {
    if (!owed_reduction(move.operands[k])) continue;
    op = owed_reduction(move.operands[k]);
    owing.push_back(std::to_string(k + 1));
  }
  if (!op) return "all is whole";
  if (*op == ReduceOp::Max || *op == ReduceOp::Min) {
    return signature.trait == Trait::Increasing ? "increasing" : "decreasing";
  }
  return std::string(*op == ReduceOp::Sum ? "linear" : "affine") + " in operand" +
         (owing.size() == 1 ? " " : "s ") + join(owing);
}

void show_moves(const Rule& rule, std::ostream& out) {
  const std::string arguments = example_arguments(rule);
  const DeviceMesh mesh({{"axis", 2}});
  const auto signature =
      arguments.empty() ? std::nullopt : rule.signature(example_call(rule, mesh));
  if (!signature) return;
  out << "for     " << rule.op << "(" << arguments << ")\n\n";
  Table table({"operands", "results", "when"});
  for (const AxisMove& move : axis_moves(*signature)) {
    const std::string text = to_string(move);
    const std::size_t arrow = text.find(" -> ");
    table.add({text.substr(0, arrow), text.substr(arrow + 4), remark_on(move, *signature, rule)});
  }
  table.print(out);
}

void show_rule(const Rule& rule, std::ostream& out) {
  out << "op      " << rule.op << "\nrule    " << rule.text << '\n';
  show_moves(rule, out);
}

// All of them ---------------------------------------------------------------------------------

constexpr std::size_t kTextWidth = 28;
constexpr std::size_t kLineWidth = 100;

void show_ops(const std::string& text, const std::vector<std::string>& ops, std::ostream& out) {
  std::string line = "  " + text;
  if (line.size() >= kTextWidth) {
    out << line << '\n';
    line.clear();
  }
  line.resize(kTextWidth, ' ');
  for (const std::string& op : ops) {
    if (line.size() + 2 + op.size() > kLineWidth) {
      out << line << '\n';
      line.assign(kTextWidth, ' ');
    }
    line += "  " + op;
  }
  out << line << '\n';
}

void show_family(const RuleFamily& family, std::ostream& out) {
  RuleTable rules;
  family.add_to(rules);
  std::map<std::string, std::vector<std::string>> by_text;
  for (const std::string& op : rules.ops()) by_text[rules.find(op)->text].push_back(op);
  out << family.name << '\n';
  for (const auto& [text, ops] : by_text) show_ops(text, ops, out);
}

void show_views(std::ostream& out) {
  std::map<std::string, std::vector<std::string>> by_text;
  for (const ViewRule& rule : view_rules()) {
    std::vector<std::string>& ops = by_text[rule.text];
    ops.insert(ops.end(), rule.ops.begin(), rule.ops.end());
  }
  out << "views (no data moves)\n";
  for (const auto& [text, ops] : by_text) show_ops(text, ops, out);
}

}  // namespace

int show_rules(const RulesCall& call, std::ostream& out) {
  if (call.names.empty()) {
    for (const RuleFamily& family : rule_families()) show_family(family, out);
    show_views(out);
    return 0;
  }
  bool is_first = true;
  const auto separate = [&] {
    if (!std::exchange(is_first, false)) out << '\n';
  };
  const std::vector<std::string> known = rule_table().ops();
  for (const std::string& name : call.names) {
    const std::vector<std::string> ops = ops_named(name, known);
    for (const std::string& op : ops) {
      separate();
      show_rule(*rule_table().find(op), out);
    }
    if (!ops.empty()) continue;
    separate();
    if (const ViewRule* view = find_view_rule(name)) {
      show_view_rule(name, *view, out);
    } else {
      show_no_rule(name, known, out);
    }
  }
  return 0;
}

}  // namespace tegula::cli
