#include "tegula/dispatch/op_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
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

}  // namespace

OpFacts::OpFacts(const c10::OperatorHandle& op) : name(toString(op.operator_name())) {
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    written.push_back(is_written(arguments[index]) ||
                      is_written_silently(name, arguments[index].name()));
    writes = writes || written.back();
    if (arguments[index].name() == "generator") generator = index;
    has_out = has_out || arguments[index].is_out();
  }
  for (const c10::Argument& result : schema.returns()) {
    std::optional<std::size_t> same;
    for (std::size_t index = 0; index < arguments.size() && result.alias_info(); ++index) {
      const bool from_it = share_memory(arguments[index], result) ||
                           (arguments[index].alias_info() && !written[index] &&
                            arguments[index].alias_info()->isWildcardAfter());
      if (!from_it) continue;
      if (written[index]) {
        same = index;
      } else if (!viewed) {
        viewed = index;
      }
      break;
    }
    return_is.push_back(same);
  }
  // no view by its schema, but libtorch writes through it
  if (name == "aten::_unsafe_view") viewed = 0;
  is_random = generator || op.hasTag(at::Tag::nondeterministic_seeded);
}

}  // namespace tegula
