#include "tegula/dispatch/op_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <map>
#include <set>

namespace tegula {
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

// Batch norm in its older form changes the running statistics without saying so.
bool is_written_silently(const std::string& name, const std::string& argument) {
  return name.starts_with("aten::native_batch_norm") &&
         (argument == "running_mean" || argument == "running_var");
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

std::string without_space(const std::string& name) {
  return name.starts_with("aten::") ? name.substr(6) : name;
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

// Overloads of every operator, by name.
const std::map<std::string, std::vector<c10::OperatorHandle>>& overloads() {
  static const auto& table = []() -> const auto& {
    static auto* made = new std::map<std::string, std::vector<c10::OperatorHandle>>;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (auto op = c10::Dispatcher::singleton().findSchema(name)) {
        (*made)[name.name].push_back(*op);
      }
    }
    return *made;
  }();
  return table;
}

// "aten::sum.IntList_out" -> "sum.dim_IntList"
std::string plain_form_of_out(const c10::OperatorHandle& op) {
  const auto found = overloads().find(op.operator_name().name);
  if (found == overloads().end()) return "";
  for (const c10::OperatorHandle& other : found->second) {
    if (other.hasSchema() && same_arguments(op.schema(), other.schema())) {
      return without_space(toString(other.operator_name()));
    }
  }
  return "";
}

// "aten::add_.Tensor" -> "add.Tensor"
std::string plain_form_of_in_place(const c10::OperatorName& name) {
  if (!name.name.ends_with('_')) return "";
  const std::string base = name.name.substr(0, name.name.size() - 1);
  if (!exists(base, name.overload_name)) return "";
  return without_space(toString(c10::OperatorName(base, name.overload_name)));
}

// "aten::_foreach_add_.List" -> "add.Tensor"; the first form of the op that exists.
std::string member_form(const c10::OperatorName& name) {
  const std::string prefix = "aten::_foreach_";
  if (name.name.starts_with("aten::_fused_")) return without_space(name.name);
  if (!name.name.starts_with(prefix)) return "";
  std::string base = name.name.substr(prefix.size());
  if (base.ends_with('_')) base.pop_back();
  const std::string full = "aten::" + base;
  std::vector<std::string> candidates{name.overload_name, "Tensor", ""};
  if (name.overload_name == "List") candidates = {"Tensor", "Tensor_Tensor", ""};
  if (name.overload_name == "ScalarList" || name.overload_name == "Scalar") {
    candidates = {"Scalar", "Tensor_Scalar", ""};
  }
  for (const std::string& overload : candidates) {
    if (exists(full, overload)) return without_space(toString(c10::OperatorName(full, overload)));
  }
  return "";
}

// Attention on the CPU is tagged as random but refuses the dropout that would make it so.
bool draws_numbers(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) &&
         op.operator_name().name != "aten::_scaled_dot_product_flash_attention_for_cpu";
}

}  // namespace

OpFacts::OpFacts(const c10::OperatorHandle& op) : name(toString(op.operator_name())) {
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    kinds.push_back(kind_of(arguments[index].type()));
    is_out.push_back(arguments[index].is_out());
    written.push_back(is_written(arguments[index]) ||
                      is_written_silently(name, arguments[index].name()));
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
  // no view by its schema, but libtorch writes through it
  if (name == "aten::_unsafe_view") viewed = 0;
  const bool has_lists =
      std::find(kinds.begin(), kinds.end(), ArgumentKind::TensorList) != kinds.end();
  if (has_lists) rule = member_form(op.operator_name());
  is_by_member = !rule.empty();
  if (rule.empty() && has_out) rule = plain_form_of_out(op);
  if (rule.empty() && writes) rule = plain_form_of_in_place(op.operator_name());
  if (rule.empty()) rule = without_space(name);
  is_random = generator || draws_numbers(op);
}

}  // namespace tegula
