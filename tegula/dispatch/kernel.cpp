// The idea: a known kind of call is carried out as decided before. For a new one: views and
// metadata changes concern geometry only; some ops are made of others; a rule says how the op runs
// on tiles; some ops fill tiles as they are; the rest takes the universal path.
#include "tegula/dispatch/kernel.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>

#include <map>
#include <mutex>
#include <set>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/call.h"
#include "tegula/dispatch/guards.h"
#include "tegula/dispatch/host_errors.h"
#include "tegula/dispatch/in_tiles.h"
#include "tegula/dispatch/leaf_gradient.h"
#include "tegula/dispatch/local_call.h"
#include "tegula/dispatch/lowered.h"
#include "tegula/dispatch/on_tiles.h"
#include "tegula/dispatch/paranoia.h"
#include "tegula/dispatch/random.h"
#include "tegula/dispatch/strict.h"
#include "tegula/dispatch/universal.h"
#include "tegula/dispatch/views.h"

namespace tegula {
namespace {

using Values = std::vector<c10::IValue>;

// Outer tensors for views. Autograd must make them again by calling the op, not from strides: a
// tile has none that mean anything.
at::Tensor outer_view(PayloadPtr payload, std::int64_t storage_offset, const at::Tensor& base) {
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  // a view of a normal tensor is a normal tensor
  std::optional<c10::InferenceMode> mode;
  if (c10::InferenceMode::is_enabled()) mode.emplace(base.is_inference());
  at::Tensor view = outer_tensor(std::move(payload));
  if (storage_offset != 0) view.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  return view;
}

Values outer_views(const std::vector<ViewResult>& results, const at::Tensor& base, bool is_list) {
  if (!is_list) {
    return {outer_view(results.front().payload, results.front().storage_offset, base)};
  }
  c10::List<at::Tensor> views;
  for (const ViewResult& result : results) {
    views.push_back(outer_view(result.payload, result.storage_offset, base));
  }
  return {views};
}

Values view_results(const Call& call) {
  const bool is_list = call.op().schema().returns()[0].type()->kind() == c10::TypeKind::ListType;
  return outer_views(views_of(call), call.arguments()[*call.facts().viewed].toTensor(), is_list);
}

Values results_by_plan(const ViewPlan& plan, const at::Tensor& base) {
  return outer_views(views_by_plan(plan, *payload_of(base), base.storage_offset()), base,
                     plan.is_list);
}

// "aten::squeeze_.dim" -> the view op "aten::squeeze.dim"; none if this does not change geometry in
// place.
std::optional<c10::OperatorHandle> geometry_change(const OpFacts& facts) {
  static const std::set<std::string> changes = {
      "aten::squeeze_",   "aten::squeeze_.dim", "aten::squeeze_.dims", "aten::unsqueeze_",
      "aten::transpose_", "aten::t_",           "aten::as_strided_"};
  if (!changes.contains(facts.name)) return std::nullopt;
  const std::size_t underscore = facts.name.rfind('_');
  const std::string name = facts.name.substr(0, underscore);
  std::string overload = facts.name.substr(underscore + 1);
  if (!overload.empty()) overload.erase(0, 1);
  if (name == "aten::transpose") overload = "int";
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
}

Values change_geometry(const Call& call, const c10::OperatorHandle& view_op) {
  const OpFacts facts(view_op);
  const at::Tensor self = call.arguments()[0].toTensor();
  const Call view(view_op, facts, call.arguments());
  const ViewResult result = views_of(view).front();
  install(self, result.payload);
  self.unsafeGetTensorImpl()->set_storage_offset(result.storage_offset);
  return {self};
}

// self takes over what source is.
Values set_to(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  const bool from_tensor = call.facts().name == "aten::set_.source_Tensor";
  const PayloadPtr source = from_tensor ? payload_of(call.arguments()[1].toTensor()) : PayloadPtr();
  if (from_tensor && !source && payload_of(self) && ImplicitReplication::is_on()) {
    // as torch::load does it: the values of a plain tensor, placed as self is
    const at::Tensor& values = call.arguments()[1].toTensor();
    if (values.sizes() == self.sizes() && values.scalar_type() == self.scalar_type()) {
      const BelowAutograd below;
      payload_of(self)->write(values);
      return {self};
    }
  }
  if (!source || !payload_of(self)) {
    throw UsageError("a DTensor cannot be given a storage")
        .fact("op", call.text())
        .hint(
            "use copy_ to change its values; to load plain values into a module, put a "
            "tegula::ImplicitReplication guard around torch::load");
  }
  install(self, source);
  return {self};
}

// A random op that is computed whole: every rank draws the same numbers.
Values run_random(const Call& call) {
  const std::optional<std::size_t>& place = call.facts().generator;
  const bool given = place && !call.arguments()[*place].isNone();
  const Draw draw =
      given ? draw_from(call.arguments()[*place].toGenerator()) : next_draw(call.world());
  at::Generator generator = replicated_generator(draw);
  if (place) return run_universal(call.with_argument(*place, generator));
  // libtorch's own generator is one for all threads: lend it the right state meanwhile. Operands
  // are gathered before, so that no rank waits for another with the lock held.
  static std::mutex lending;
  return run_universal(call, [&](const std::function<Values()>& op) {
    const std::lock_guard lock(lending);
    at::Generator global = at::globalContext().defaultGenerator(at::kCPU);
    const at::Tensor state = global.get_state();
    global.set_state(generator.get_state());
    try {
      Values results = op();
      global.set_state(state);
      return results;
    } catch (...) {
      global.set_state(state);
      throw;
    }
  });
}

// Whether two tensors that a list op writes are views of one memory; the same on all ranks.
bool writes_share_memory(const Call& call) {
  std::set<const c10::StorageImpl*> seen;
  for (const TensorPlace& place : call.tensors()) {
    if (!place.payload || !call.facts().written[place.argument] || place.member < 0) continue;
    const Link* link = place.payload->link();
    const at::Tensor tile = link ? link->base->tile() : place.payload->tile();
    if (!seen.insert(tile.storage().unsafeGetStorageImpl()).second) return true;
  }
  return false;
}

// A list op whose tensors overlap, one member after the other as libtorch does it.
Values run_by_member(const Call& call) {
  const std::size_t members = call.arguments()[0].toListRef().size();
  for (std::size_t member = 0; member < members; ++member) {
    Values arguments = call.arguments();
    for (c10::IValue& argument : arguments) {
      if (!argument.isList() || argument.toListRef().size() != members) continue;
      c10::impl::GenericList one(argument.toList().elementType());
      one.push_back(argument.toListRef()[member]);
      argument = one;
    }
    run_universal(Call(call.op(), call.facts(), arguments));
  }
  return {};
}

// Ways without a rule --------------------------------------------------------------------------

Values run_without_dtensors(const Call& call) {
  if (std::optional<Values> built = build_distributed(call)) return *built;
  const PassUsBy plain;
  Values arguments = call.arguments();
  call.op().callBoxed(&arguments);
  return arguments;
}

// Ops that change what a tensor is, not its values.
std::optional<Values> run_on_geometry(const Call& call) {
  if (const auto view_op = geometry_change(call.facts())) return change_geometry(call, *view_op);
  if (call.facts().name.starts_with("aten::set_")) return set_to(call);
  return std::nullopt;
}

Values run_whole(const Call& call) {
  check_may_gather(call);
  if (call.facts().name.starts_with("aten::_foreach_") && call.facts().return_is.empty() &&
      writes_share_memory(call)) {
    return run_by_member(call);
  }
  return call.facts().is_random ? run_random(call) : run_universal(call);
}

Values run(const Call& call) {
  if (!call.has_dtensors()) return run_without_dtensors(call);
  call.check_plain_tensors();
  if (std::optional<Values> results = run_on_geometry(call)) return *results;
  return run_whole(call);
}

// A rule's decision needs the tiles of what is written.
bool can_follow_a_rule(const Call& call) {
  if (call.facts().is_random) return false;
  for (const TensorPlace& place : call.tensors()) {
    const bool is_written = call.facts().written[place.argument];
    if (is_written && (!place.payload || place.payload->link())) return false;
    if (!place.payload && place.tensor.defined() && place.tensor.layout() != at::kStrided) {
      return false;
    }
  }
  return true;
}

// libtorch's recurrent modules make the initial state themselves, plain.
bool takes_libtorchs_own(const std::string& name) {
  return name == "aten::lstm.input" || name == "aten::gru.input" ||
         name == "aten::rnn_tanh.input" || name == "aten::rnn_relu.input";
}

// Some compositions read the elements of an argument themselves: lengths, places to split at.
void make_plain_what_is_read(const Call& call, torch::jit::Stack* stack) {
  static const std::map<std::string, std::vector<std::size_t>> read = {
      {"aten::tensor_split.tensor_indices_or_sections", {1}},
      {"aten::ctc_loss.Tensor", {2, 3}},
  };
  const auto found = read.find(call.facts().name);
  if (found == read.end()) return;
  for (std::size_t index : found->second) {
    c10::IValue& argument = (*stack)[stack->size() - call.arguments().size() + index];
    if (const PayloadPtr payload = payload_of(argument.toTensor())) {
      const BelowAutograd below;
      argument = payload->whole();
    }
  }
}

// out= has no gradient, in libtorch as here.
void check_no_gradient_is_lost(const Call& call) {
  for (const TensorPlace& place : call.tensors()) {
    if (!at::GradMode::is_enabled() || !place.tensor.defined()) break;
    if (!place.tensor.requires_grad()) continue;
    throw UsageError("a function with out= cannot be differentiated")
        .fact("op", call.text())
        .hint("leave out= away, or put a NoGradGuard around the call");
  }
}

void replace_top(torch::jit::Stack* stack, std::size_t arguments, Values results) {
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

}  // namespace

void Kernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                        torch::jit::Stack* stack) {
  const PassUsBy ours;  // tensors that we make are not the user's
  with_host_errors([&] {
    const CallKey key(facts_, *stack);
    if (const std::shared_ptr<const Decision> decision = known(key)) {
      run_known(op, *decision, *stack);
    } else {
      run_new(op, key, *stack);
    }
  });
}

std::shared_ptr<const Decision> Kernel::known(const CallKey& key) const {
  if (!key.is_known() || is_checking(key.world()) || StrictMode::is_on()) return nullptr;
  return key.world().part<Decisions>().find(index_, key);
}

void Kernel::run_known(const c10::OperatorHandle& op, const Decision& decision,
                       torch::jit::Stack& stack) const {
  watch_leaves(facts_, stack);
  if (const auto* on_tiles = std::get_if<OnTiles>(&decision)) {
    std::optional<CommLabel> label;
    if (on_tiles->communicates) label.emplace(facts_.name);
    run_on_tiles(op, facts_, *on_tiles, stack);
    return;
  }
  const auto& plan = std::get<ViewPlan>(decision);
  const std::size_t first = stack.size() - facts_.kinds.size();
  Values results = results_by_plan(plan, stack[first + plan.viewed].toTensor());
  replace_top(&stack, facts_.kinds.size(), std::move(results));
}

at::Tensor run_view(const ViewPlan& plan, const at::Tensor& base) {
  const Payload& self = *payload_in(base);
  const ViewPlan::Result& result = plan.results.front();
  PayloadPtr payload;
  {
    const BelowAutograd below;
    torch::jit::Stack stack = plan.calls.front().arguments;
    stack[plan.viewed] = self.tile();
    plan.calls.front().op.callBoxed(stack);
    payload = c10::make_intrusive<Payload>(std::move(stack.front()).toTensor(), result.spec,
                                           self.world(), result.layout);
  }
  return outer_view(std::move(payload), base.storage_offset() + result.offset, base);
}

void Kernel::run_new(const c10::OperatorHandle& op, const CallKey& key,
                     torch::jit::Stack& stack) const {
  const CommLabel label(facts_.name);
  const Call call(op, facts_, stack);
  const auto give = [&](Values results) {
    replace_top(&stack, call.arguments().size(), std::move(results));
  };
  const auto remember = [&](Decision decision) {
    if (!key.is_known() || !call.mesh().coordinate_of(call.world().rank())) return;
    call.world().part<Decisions>().remember(index_, key,
                                            std::make_shared<const Decision>(std::move(decision)));
  };
  if (!call.has_dtensors()) return give(run_without_dtensors(call));
  call.check_plain_tensors();
  watch_leaves(facts_, stack);
  check_replicas(call);
  if (std::optional<Values> results = run_on_geometry(call)) return give(std::move(*results));
  if (facts_.viewed) {
    std::optional<ViewPlan> plan =
        facts_.name == "aten::as_strided" ? std::nullopt : plan_views(call);
    if (!plan) return give(view_results(call));
    give(results_by_plan(*plan, call.arguments()[plan->viewed].toTensor()));
    return remember(std::move(*plan));
  }
  check_may_look(call);
  if (std::optional<Values> results = run_lowered(call)) return give(std::move(*results));
  if (can_follow_a_rule(call)) {
    if (std::optional<Draft> draft = draft_for(call)) {
      check_may_move(call, *draft);
      const Witness witness(call);
      OnTiles decision = run_draft(call, std::move(*draft), stack);
      witness.compare(stack);
      return remember(std::move(decision));
    }
  }
  if (std::optional<Values> results = run_in_tiles(call)) return give(std::move(*results));
  give(run_whole(call));
}

void CompositeKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                                 torch::jit::Stack* stack) {
  bool is_done = false;
  with_host_errors([&] {
    const CommLabel label(facts_.name);
    const Call call(op, facts_, *stack);
    if (call.has_dtensors() && !takes_libtorchs_own(facts_.name)) call.check_plain_tensors();
    make_plain_what_is_read(call, stack);
    if (!call.has_dtensors() || !facts_.has_out) return;
    // libtorch's composition would resize the out tensor's storage
    check_no_gradient_is_lost(call);
    replace_top(stack, call.arguments().size(), run(call));
    is_done = true;
  });
  if (is_done) return;
  const ImplicitReplication own_tensors;
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
}

void refuse_other_layouts(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  with_host_errors([&] {
    const OpFacts facts(op);
    const Call call(op, facts, *stack);
    check_readable(call);
    throw UsageError("the op has no distributed form")
        .fact("op", call.text())
        .hint("call it on full_tensor(x)");
  });
}

}  // namespace tegula
