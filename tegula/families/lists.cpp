// Operators over lists: what they do to the tensors at one place of all lists is what another op
// does.
#include "tegula/families/lists.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {
namespace {

bool exists(const std::string& name, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({name, overload}).has_value();
}

// "List_out" -> "List", "out" -> ""
std::string without_out(const std::string& overload) {
  if (overload == "out") return "";
  return overload.ends_with("_out") ? overload.substr(0, overload.size() - 4) : overload;
}

// "aten::_foreach_add_.List", "aten::_foreach_add.List_out" -> "add.Tensor"; the first form of the
// op that exists.
std::string op_of_members(std::string name, const std::string& full_overload) {
  const std::string overload = without_out(full_overload);
  if (name.ends_with('_')) name.pop_back();
  std::vector<std::string> candidates{overload, "Tensor", ""};
  if (overload == "List") candidates = {"Tensor", "Tensor_Tensor", ""};
  if (overload == "ScalarList" || overload == "Scalar") {
    candidates = {"Scalar", "Tensor_Scalar", ""};
  }
  if (overload == "ScalarAndTensor") candidates = {"Scalar"};
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

// Members that are on one mesh.
struct MembersOnMesh {
  DeviceMesh mesh;
  std::vector<std::size_t> members;
};

// By the tensors of the first list; plain ones go with the first DTensors.
std::vector<MembersOnMesh> by_mesh(const Call& call) {
  std::vector<MembersOnMesh> groups;
  std::vector<std::size_t> plain;
  for (const TensorPlace& place : call.tensors()) {
    if (place.argument != call.facts().tensor_arguments.front() || place.member < 0) continue;
    const auto member = static_cast<std::size_t>(place.member);
    if (!place.payload) {
      plain.push_back(member);
      continue;
    }
    const DeviceMesh& mesh = place.payload->spec().mesh();
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const MembersOnMesh& one) { return one.mesh == mesh; });
    if (group == groups.end()) group = groups.insert(group, MembersOnMesh{mesh, {}});
    group->members.push_back(member);
  }
  if (!groups.empty()) {
    groups.front().members.insert(groups.front().members.end(), plain.begin(), plain.end());
  }
  return groups;
}

// A replicated tensor is that on every mesh of its ranks.
at::Tensor on_mesh(const at::Tensor& tensor, const DeviceMesh& mesh) {
  const Payload* payload = payload_in(tensor);
  const bool can_be = payload && payload->spec().is_replicated() && !payload->link() &&
                      payload->spec().mesh().covers(mesh);
  if (!can_be) return tensor;
  return outer_tensor(payload->tile(), replicated_spec(mesh, payload->spec().meta()),
                      payload->world());
}

// The call for some members.
Values arguments_for(const MembersOnMesh& group, Arguments arguments, std::size_t members) {
  Values chosen(arguments.begin(), arguments.end());
  for (c10::IValue& argument : chosen) {
    if (argument.isTensor()) argument = on_mesh(argument.toTensor(), group.mesh);
    if (!argument.isList() || argument.toListRef().size() != members) continue;
    c10::impl::GenericList some(argument.toList().elementType());
    for (const std::size_t member : group.members) some.push_back(argument.toListRef()[member]);
    argument = some;
  }
  return chosen;
}

}  // namespace

Recipe one_mesh_at_a_time(const Call& call) {
  std::vector<MembersOnMesh> groups = by_mesh(call);
  if (groups.size() < 2) return nullptr;
  return [op = call.op(), groups = std::move(groups)](Arguments arguments) -> Values {
    const std::size_t members = arguments[0].toListRef().size();
    std::vector<std::vector<at::Tensor>> results(op.schema().returns().size(),
                                                 std::vector<at::Tensor>(members));
    for (const MembersOnMesh& group : groups) {
      Values stack = arguments_for(group, arguments, members);
      op.callBoxed(&stack);
      for (std::size_t list = 0; list < results.size(); ++list) {
        for (std::size_t k = 0; k < group.members.size(); ++k) {
          results[list][group.members[k]] = stack[list].toListRef()[k].toTensor();
        }
      }
    }
    return {results.begin(), results.end()};
  };
}

namespace {

// Functional forms ----------------------------------------------------------------------------

c10::IValue copies_of(const c10::IValue& list) {
  return with_tensors(list, [](int, const at::Tensor& tensor) { return tensor.clone(); });
}

Recipe copy_of_each(const Call&) {
  return [](Arguments arguments) -> Values { return {copies_of(arguments[0])}; };
}

// The placements of the first tensor of its shape that stands at one place of the lists and is cut.
// None if there is none.
std::optional<DTensorSpec> cut_of_member(Arguments arguments, std::size_t member,
                                         at::IntArrayRef sizes) {
  for (const c10::IValue& list : arguments) {
    if (!list.isTensorList() || list.toListRef().size() <= member) continue;
    const at::Tensor& tensor = list.toListRef()[member].toTensor();
    const Payload* payload = payload_in(tensor);
    if (!payload || payload->link() || tensor.sizes() != sizes) continue;
    const DTensorSpec spec = with_reductions_done(payload->spec());
    if (!spec.is_replicated()) return spec;
  }
  return std::nullopt;
}

// Copies of a list that are cut as other lists of the call are: slicing costs nothing.
c10::IValue copies_cut_alike(const c10::IValue& list, Arguments arguments) {
  return with_tensors(list, [&](int member, const at::Tensor& tensor) {
    const auto cut = cut_of_member(arguments, static_cast<std::size_t>(member), tensor.sizes());
    const Payload* payload = payload_in(tensor);
    const bool is_sliced = cut && payload && !payload->link() && payload->spec().is_replicated() &&
                           payload->spec().mesh() == cut->mesh();
    if (!is_sliced) return tensor.clone();
    return move_to(tensor, cut->with_meta(dense(payload->spec().meta())), CallMode::Sync, {})
        .clone();
  });
}

// (self, tensor1, tensor2, scalars): a tensor of one number per member, which all ranks have.
Recipe with_list_of_scalars(const Call& call) {
  const auto op =
      c10::Dispatcher::singleton().findSchema({call.op().operator_name().name, "ScalarList"});
  const at::Tensor& scalars = call.arguments()[3].toTensor();
  const Payload* payload = payload_in(scalars);
  if (!op || scalars.dim() != 1 || (payload && !payload->spec().is_replicated())) return nullptr;
  return [op = *op](Arguments arguments) -> Values {
    Values stack(arguments.begin(), arguments.end());
    const at::Tensor& numbers = stack[3].toTensor();
    const PayloadPtr held = payload_of(numbers);
    const at::Tensor plain = held ? held->whole() : numbers;
    c10::impl::GenericList list(c10::NumberType::get());
    for (std::int64_t k = 0; k < plain.numel(); ++k) list.push_back(plain[k].item());
    stack[3] = list;
    op.callBoxed(&stack);
    return stack;
  };
}

// (gradients, found_inf, inv_scale): ranks look at their tiles, and agree on what they found.
Recipe unscaled_and_checked(const Call& call) {
  for (const TensorPlace& place : call.tensors()) {
    const Payload* payload = place.payload.get();
    const bool is_gradient = place.member >= 0;
    if (is_gradient && (!payload || payload->link() || payload->spec().is_partial())) {
      return nullptr;
    }
    if (!is_gradient && payload && !payload->spec().is_replicated()) return nullptr;
  }
  if (!call.coordinate()) return nullptr;
  return [mesh = call.mesh(), world = call.world()](Arguments arguments) -> Values {
    const auto plain_of = [](const at::Tensor& tensor) {
      const PayloadPtr payload = payload_of(tensor);
      return payload ? payload->tile() : tensor;
    };
    std::vector<at::Tensor> tiles;
    for (const at::Tensor& gradient : arguments[0].toTensorVector()) {
      tiles.push_back(payload_of(gradient)->tile());
    }
    const at::Tensor found = plain_of(arguments[1].toTensor());
    at::Tensor here = at::zeros_like(found);
    at::_amp_foreach_non_finite_check_and_unscale_(tiles, here, plain_of(arguments[2].toTensor()));
    const TensorMeta meta = meta_of(here);
    const DTensorSpec owed(mesh, Placements(mesh.ndim(), Partial(ReduceOp::Max)), meta);
    found.copy_(
        at::maximum(found, redistribute_tile(world, here, owed, replicated_spec(mesh, meta))));
    return {};
  };
}

// "aten::_fused_adam": the in-place form on copies of what it writes, which are the results.
Recipe on_copies(const Call& call) {
  const c10::OperatorName& name = call.op().operator_name();
  const auto in_place =
      c10::Dispatcher::singleton().findSchema({name.name + "_", name.overload_name});
  if (!in_place) return nullptr;
  return [op = *in_place](Arguments arguments) -> Values {
    Values stack(arguments.begin(), arguments.end());
    Values results;
    for (std::size_t index = 0; index < stack.size(); ++index) {
      const c10::AliasInfo* alias = op.schema().arguments()[index].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      stack[index] = copies_cut_alike(stack[index], arguments);
      results.push_back(stack[index]);
    }
    op.callBoxed(&stack);
    return results;
  };
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
  if (!notes.rule_per_member.empty()) notes.decomposition = one_mesh_at_a_time;
  if (toString(name) == "aten::_foreach_clone") notes.decomposition = copy_of_each;
  if (name.overload_name == "Tensor" && name.name.starts_with("aten::_foreach_addc")) {
    notes.decomposition = with_list_of_scalars;
  }
  if (toString(name) == "aten::_amp_foreach_non_finite_check_and_unscale_") {
    notes.decomposition = unscaled_and_checked;
  }
  const bool is_functional = !name.name.ends_with('_') && !name.overload_name.ends_with("out");
  if (name.name.starts_with("aten::_fused_") && is_functional) notes.decomposition = on_copies;
}

}  // namespace tegula::inner::families
