// The idea: what kind of op is it? Views and metadata changes concern geometry only; some ops work
// on tiles as they are; the rest takes the universal path.
#include "tegula/dispatch/kernel.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>

#include <map>
#include <mutex>
#include <set>

#include "tegula/base/error.h"
#include "tegula/dispatch/call.h"
#include "tegula/dispatch/guards.h"
#include "tegula/dispatch/host_errors.h"
#include "tegula/dispatch/in_tiles.h"
#include "tegula/dispatch/leaf_gradient.h"
#include "tegula/dispatch/local_call.h"
#include "tegula/dispatch/paranoia.h"
#include "tegula/dispatch/random.h"
#include "tegula/dispatch/universal.h"
#include "tegula/dispatch/views.h"

namespace tegula {
namespace {

using Values = std::vector<c10::IValue>;

// Outer tensors for views. Autograd must make them again by calling the op, not from strides: a
// tile has none that mean anything.
Values view_results(const Call& call) {
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  const at::Tensor base = call.arguments()[*call.facts().viewed].toTensor();
  // a view of a normal tensor is a normal tensor
  const c10::InferenceMode mode(c10::InferenceMode::is_enabled() && base.is_inference());
  c10::List<at::Tensor> views;
  for (const ViewResult& result : views_of(call)) {
    const at::Tensor view = outer_tensor(result.payload);
    view.unsafeGetTensorImpl()->set_storage_offset(result.storage_offset);
    views.push_back(view);
  }
  const bool is_list = call.op().schema().returns()[0].type()->kind() == c10::TypeKind::ListType;
  return {is_list ? c10::IValue(views) : c10::IValue(views.get(0))};
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

Values run(const Call& call) {
  if (!call.has_dtensors()) {
    if (std::optional<Values> built = build_distributed(call)) return *built;
    const PassUsBy plain;
    Values arguments = call.arguments();
    call.op().callBoxed(&arguments);
    return arguments;
  }
  call.check_plain_tensors();
  for (const TensorPlace& place : call.tensors()) {
    if (place.payload) watch_leaf(place.tensor);
  }
  check_replicas(call);
  if (const auto view_op = geometry_change(call.facts())) return change_geometry(call, *view_op);
  if (call.facts().name.starts_with("aten::set_")) return set_to(call);
  if (call.facts().viewed) return view_results(call);
  if (std::optional<Values> results = run_in_tiles(call)) return *results;
  if (call.facts().name.starts_with("aten::_foreach_") && call.facts().return_is.empty() &&
      writes_share_memory(call)) {
    return run_by_member(call);
  }
  return call.facts().is_random ? run_random(call) : run_universal(call);
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
    const Call call(op, facts_, *stack);
    replace_top(stack, call.arguments().size(), run(call));
  });
}

void CompositeKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                                 torch::jit::Stack* stack) {
  bool is_done = false;
  with_host_errors([&] {
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
