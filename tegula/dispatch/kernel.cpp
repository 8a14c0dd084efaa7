// The idea: a known kind of call is carried out as decided before. For a new one the operator's
// entry is asked for the ways in which it can be carried out, in this order: a change of what the
// tensor is, a view, operands gathered for use, a decomposition, a rule, work on tiles, the plain
// form of an op that writes; the rest takes the universal path.
#include "tegula/dispatch/kernel.h"

#include <ATen/ATen.h>

#include "tegula/base/overloaded.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/decision_cache.h"
#include "tegula/dispatch/gather_for_use.h"
#include "tegula/dispatch/local_op.h"
#include "tegula/dispatch/op_errors.h"
#include "tegula/dispatch/overlaps.h"
#include "tegula/dispatch/paranoia.h"
#include "tegula/dispatch/plain_form.h"
#include "tegula/dispatch/plain_operands.h"
#include "tegula/dispatch/strict.h"
#include "tegula/dispatch/views.h"
#include "tegula/gradient/leaf_gradient.h"
#include "tegula/operators/call.h"
#include "tegula/operators/user_decompositions.h"
#include "tegula/ops/families.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/local_call.h"

namespace tegula::inner {
namespace {

using torch::jit::Stack;

Values run_decomposition(const OpFacts& facts, const Recipe& recipe, Arguments arguments) {
  const BelowAutograd below;
  const OnPurpose exchange;
  const CommLabel label(facts.name, CommLabel::Reach::OverInnerLabels);
  return recipe(arguments);
}

Values run_tile_op(const Recipe& recipe, Arguments arguments) {
  const BelowAutograd below;
  return recipe(arguments);
}

// Leaves get to know that they get a gradient; what is written is listed.
void look_at_tensors(const OperatorEntry& entry, Arguments arguments, WritesOfOp& writes) {
  const OpFacts& facts = entry.facts;
  if (facts.writes) check_overlaps(entry, arguments);
  for_each_tensor(facts, arguments, [&](std::size_t index, int, const at::Tensor& tensor) {
    if (!payload_in(tensor)) return;
    watch_if_leaf(tensor);
    if (facts.written[index]) writes.add(tensor);
  });
}

// What a user has registered outranks what the op's family says, a rule as well as a decomposition.
Recipe decomposition_of(const Call& call) {
  if (Recipe users = user_decompositions().find(rule_name(call.facts().name))) return users;
  if (!call.notes().decomposition) return nullptr;
  const auto rule = rule_table().find(call.facts().rule);
  return rule && rule->is_users ? nullptr : call.notes().decomposition(call);
}

}  // namespace

void replace_arguments(Stack& stack, std::size_t arguments, Values results) {
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(arguments), stack.end());
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

void Kernel::operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const PassUsBy ours;  // tensors that we make are not the user's
  with_host_errors([&] {
    const Arguments arguments = Arguments(*stack).last(entry_.facts.kinds.size());
    const CallKey key(entry_.facts, arguments);
    if (const std::shared_ptr<const Decision> decision = known(key)) {
      run_known(key, *decision, *stack);
    } else {
      run_new(key, *stack);
    }
  });
}

std::shared_ptr<const Decision> Kernel::known(const CallKey& key) const {
  if (!key.is_known()) return nullptr;
  std::shared_ptr<const Decision> decision =
      key.world().part<DecisionCache>().find(entry_.index, key);
  // strict mode looks at each call that might move data
  if (decision && may_communicate(*decision) && StrictMode::is_on()) return nullptr;
  return decision;
}

void Kernel::run_known(const CallKey& key, const Decision& decision, Stack& stack) const {
  const World world = key.world();  // the stack may let go of the tensor that it is of
  try {
    if (key.has_plain_tensor()) agree_on_plain_operands(Call(entry_, stack));
    carry_out(decision, stack);
  } catch (...) {
    note_op_error(entry_, key, world);
    throw;
  }
}

void Kernel::carry_out(const Decision& decision, Stack& stack) const {
  const OpFacts& facts = entry_.facts;
  const Arguments arguments = Arguments(stack).last(facts.kinds.size());
  WritesOfOp writes;
  look_at_tensors(entry_, arguments, writes);
  const auto give = [&](Values results) {
    replace_arguments(stack, facts.kinds.size(), std::move(results));
  };
  std::visit(Overloaded{
                 [&](const LocalOp& local_op) {
                   std::optional<CommLabel> label;
                   if (local_op.communicates) label.emplace(facts.name);
                   run_local_op(entry_, local_op, stack);
                 },
                 [&](const ViewPlan& plan) { give(run_view(plan, arguments)); },
                 [&](const LinkPlan& plan) { give(run_view(plan, arguments)); },
                 [&](const Decomposition& way) {
                   Values results = run_decomposition(facts, way.run, arguments);
                   const bool is_left_over =
                       results.empty() && !facts.return_is.empty();  // plain_form.h
                   give(is_left_over ? run_whole(Call(entry_, stack)) : std::move(results));
                 },
                 [&](const TileOp& way) {
                   const CommLabel label(facts.name);
                   give(run_tile_op(way.run, arguments));
                 },
                 [&](const Universal&) {
                   const CommLabel label(facts.name);
                   give(run_whole(Call(entry_, stack)));
                 },
             },
             decision);
}

void Kernel::run_new(const CallKey& key, Stack& stack) const {
  const CommLabel label(entry_.facts.name);
  const Call call(entry_, stack);
  try {
    decide(key, call, stack);
  } catch (...) {
    note_op_error(call);
    throw;
  }
}

void Kernel::decide(const CallKey& key, const Call& call, Stack& stack) const {
  const OpFacts& facts = entry_.facts;
  const OperatorNotes& notes = entry_.notes;
  const auto give = [&](Values results) {
    replace_arguments(stack, facts.kinds.size(), std::move(results));
  };
  const auto remember = [&](Decision decision) {
    if (!key.is_known() || !call.coordinate() || is_checking(call.world())) return;
    std::vector<DTensorSpec> specs;
    for (const TensorPlace& place : call.tensors()) {
      if (place.payload) specs.push_back(place.payload->spec());
    }
    call.world().part<DecisionCache>().remember(
        entry_.index, key, std::make_shared<const Decision>(std::move(decision)), std::move(specs));
  };

  if (!call.has_dtensors()) return give(run_without_dtensors(call));
  call.check_plain_tensors();
  WritesOfOp writes;
  look_at_tensors(entry_, call.arguments(), writes);
  check_replicas(call);
  agree_on_plain_operands(call);
  if (notes.change) return give(notes.change(call));
  if (facts.viewed) {
    return std::visit(
        [&](auto plan) {
          Values results = run_view(plan, call.arguments());
          check_views(call, results);
          note_alias(plan, call.arguments(), results);
          give(std::move(results));
          if (!notes.check_view) remember(std::move(plan));
        },
        plan_view(call));
  }
  check_may_look(call);
  if (Recipe recipe = gather_for_use(call)) {
    give(run_decomposition(facts, recipe, call.arguments()));
    return remember(Decomposition{std::move(recipe)});
  }
  if (Recipe recipe = decomposition_of(call)) {
    give(run_decomposition(facts, recipe, call.arguments()));
    return remember(Decomposition{std::move(recipe)});
  }
  const auto run_plain_form = [&] {
    const Recipe recipe = StrictMode::is_on() ? nullptr : by_plain_form(call);
    if (!recipe) return false;
    Values results = run_decomposition(facts, recipe, call.arguments());
    if (results.empty()) return false;
    give(std::move(results));
    remember(Decomposition{recipe});
    return true;
  };
  if (std::optional<LocalOpDraft> draft = draft_local_op(call)) {
    // the plain form may know a way that sends less, its family's
    if (facts.has_out && draft->local_op.communicates && run_plain_form()) return;
    check_may_move(call, *draft);
    const Witness witness(call);
    LocalOp decision = run_draft(call, std::move(*draft), stack);
    witness.compare(stack);
    return remember(std::move(decision));
  }
  if (Recipe recipe = notes.tile_op ? notes.tile_op(call) : nullptr) {
    give(run_tile_op(recipe, call.arguments()));
    return remember(TileOp{std::move(recipe)});
  }
  if (run_plain_form()) return;
  give(run_whole(call));
  remember(Universal{});
}

}  // namespace tegula::inner
