// The idea: aliasing in the schema says what is written, viewed and returned; the forms of an op
// (in place, out=) are found by name and signature, so that one rule serves all of them.
#include "tegula/operators/op_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "tegula/operators/operator_notes.h"

namespace tegula::inner {
namespace {

// Alias sets of an argument or return, those of list members included.
std::set<std::string> alias_sets(const c10::AliasInfo* info) {
  std::set<std::string> sets;
  if (!info) return sets;
  for (const c10::Symbol& set : info->beforeSets()) sets.insert(set.toUnqualString());
  for (const c10::AliasInfo& part : info->containedTypes()) sets.merge(alias_sets(&part));
  return sets;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

bool share_memory(const c10::Argument& a, const c10::Argument& b) {
  const std::set<std::string> of_b = alias_sets(b.alias_info());
  const std::set<std::string> of_a = alias_sets(a.alias_info());
  return std::any_of(of_a.begin(), of_a.end(),
                     [&](const std::string& set) { return of_b.contains(set); });
}

ArgumentKind kind_of(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return ArgumentKind::Tensor;
    case c10::TypeKind::OptionalType:
      return kind_of(type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType: {
      const ArgumentKind member = kind_of(type->expectRef<c10::ListType>().getElementType());
      return member == ArgumentKind::Tensor ? ArgumentKind::TensorList : member;
    }
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::GeneratorType:
      return ArgumentKind::Type;
    default:
      return ArgumentKind::Value;
  }
}

bool exists(const std::string& name, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({name, overload}).has_value();
}

// Whether two signatures have the same arguments, out ones aside.
bool same_arguments(const c10::FunctionSchema& with_out, const c10::FunctionSchema& plain) {
  std::vector<const c10::Argument*> left;
  for (const c10::Argument& argument : with_out.arguments()) {
    if (!argument.is_out()) left.push_back(&argument);
  }
  if (left.size() != plain.arguments().size()) return false;
  for (std::size_t index = 0; index < left.size(); ++index) {
    const c10::Argument& other = plain.arguments()[index];
    if (left[index]->name() != other.name() || *left[index]->type() != *other.type()) return false;
  }
  return true;
}

// The overloads of an operator that are registered so far.
std::vector<c10::OperatorHandle> overloads_of(const c10::OperatorName& asked) {
  using Table = std::map<std::string, std::map<std::string, c10::OperatorHandle>>;
  static std::mutex mutex;
  static Table& table = *new Table;  // operators outlive every static object
  const std::lock_guard lock(mutex);
  if (!table[asked.name].contains(asked.overload_name)) {
    table.clear();
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (op) table[name.name].emplace(name.overload_name, *op);
    }
  }
  std::vector<c10::OperatorHandle> overloads;
  for (const auto& [name, op] : table[asked.name]) overloads.push_back(op);
  return overloads;
}

// The first that takes the same arguments; empty if none does.
std::string plain_form_among(const std::vector<c10::OperatorHandle>& overloads,
                             const c10::FunctionSchema& schema) {
  for (const c10::OperatorHandle& other : overloads) {
    if (other.hasSchema() && same_arguments(schema, other.schema())) {
      return rule_name(toString(other.operator_name()));
    }
  }
  return "";
}

// "aten::sum.IntList_out" -> "sum.dim_IntList"
std::string plain_form_of_out(const c10::OperatorHandle& op) {
  return plain_form_among(overloads_of(op.operator_name()), op.schema());
}

// "add_" -> "add", and by Python's custom "__iand__" -> "__and__"; behind the namespace.
std::string base_of_in_place(const std::string& name) {
  const std::size_t dunder = name.find("::__i");
  if (dunder != std::string::npos && name.ends_with("__")) {
    return name.substr(0, dunder + 4) + name.substr(dunder + 5);
  }
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : "";
}

// "aten::add_.Tensor" -> "add.Tensor"; "aten::pow_.Tensor" -> "pow.Tensor_Tensor", which takes the
// same arguments.
std::string plain_form_of_in_place(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const std::string base = base_of_in_place(name.name);
  if (base.empty()) return "";
  const bool has_namesake = exists(base, name.overload_name);
  const std::string same =
      plain_form_among(overloads_of({base, has_namesake ? name.overload_name : ""}), op.schema());
  if (!same.empty() || !has_namesake) return same;
  return rule_name(toString(c10::OperatorName(base, name.overload_name)));
}

}  // namespace

constexpr std::string_view kLibtorchs = "aten";

std::string rule_name(const std::string& name) {
  const bool is_libtorchs = name.substr(0, name.find("::")) == kLibtorchs;
  return is_libtorchs ? name.substr(kLibtorchs.size() + 2) : name;
}

c10::OperatorName operator_name_of(const std::string& rule) {
  const std::size_t dot = rule.find('.');
  std::string name = rule.substr(0, dot);
  if (name.find("::") == std::string::npos) name.insert(0, std::string(kLibtorchs) + "::");
  return {std::move(name), dot == std::string::npos ? std::string() : rule.substr(dot + 1)};
}

OpFacts::OpFacts(const c10::OperatorHandle& op, const OperatorNotes& notes)
    : name(toString(op.operator_name())) {
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    kinds.push_back(kind_of(arguments[index].type()));
    is_out.push_back(arguments[index].is_out());
    if (kinds.back() == ArgumentKind::Tensor || kinds.back() == ArgumentKind::TensorList) {
      tensor_arguments.push_back(index);
    }
    written.push_back(is_written(arguments[index]) ||
                      std::count(notes.also_written.begin(), notes.also_written.end(),
                                 arguments[index].name()) > 0);
    writes = writes || written.back();
    if (arguments[index].name() == "generator") generator = index;
    has_out = has_out || is_out.back();
  }
  for (const c10::Argument& result : schema.returns()) {
    std::optional<std::size_t> same;
    for (std::size_t k = 0; k < arguments.size() && result.alias_info(); ++k) {
      const bool from_it =
          share_memory(arguments[k], result) || (arguments[k].alias_info() && !written[k] &&
                                                 arguments[k].alias_info()->isWildcardAfter());
      if (!from_it) continue;
      if (written[k]) {
        same = k;
      } else if (!viewed) {
        viewed = k;
      }
      break;
    }
    return_is.push_back(same);
  }
  if (notes.also_viewed) viewed = notes.also_viewed;
  rule = notes.rule_per_member;
  is_by_member = !rule.empty();
  if (rule.empty() && has_out) rule = plain_form_of_out(op);
  if (rule.empty() && writes) rule = plain_form_of_in_place(op);
  if (rule.empty()) rule = rule_name(name);
  is_random = (generator || op.hasTag(at::Tag::nondeterministic_seeded)) && !notes.draws_nothing;
}

}  // namespace tegula::inner
