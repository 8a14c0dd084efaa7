// Operators over lists: what they do to the tensors at one place of all lists is what another op
// does.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "tegula/families/families.h"

namespace tegula::inner::families {
namespace {

bool exists(const std::string& name, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({name, overload}).has_value();
}

// "aten::_foreach_add_.List" -> "add.Tensor"; the first form of the op that exists.
std::string op_of_members(std::string name, const std::string& overload) {
  if (name.ends_with('_')) name.pop_back();
  std::vector<std::string> candidates{overload, "Tensor", ""};
  if (overload == "List") candidates = {"Tensor", "Tensor_Tensor", ""};
  if (overload == "ScalarList" || overload == "Scalar") {
    candidates = {"Scalar", "Tensor_Scalar", ""};
  }
  for (const std::string& candidate : candidates) {
    if (exists(name, candidate)) return rule_name(toString(c10::OperatorName(name, candidate)));
  }
  return "";
}

bool has_lists(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) {
                       return argument.type()->kind() == c10::TypeKind::ListType &&
                              argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
                     });
}

}  // namespace

void lists(const c10::OperatorHandle& op, OperatorNotes& notes) {
  const c10::OperatorName& name = op.operator_name();
  if (!has_lists(op.schema())) return;
  const std::string prefix = "aten::_foreach_";
  if (name.name.starts_with(prefix)) {
    notes.rule_per_member =
        op_of_members("aten::" + name.name.substr(prefix.size()), name.overload_name);
    notes.writes_in_order = true;
  } else if (name.name.starts_with("aten::_fused_")) {
    notes.rule_per_member = rule_name(name.name);
  }
}

}  // namespace tegula::inner::families
