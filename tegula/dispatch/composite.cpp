#include "tegula/dispatch/composite.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/kernel.h"
#include "tegula/dispatch/plain_form.h"
#include "tegula/dispatch/strict.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/local_call.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

// Some compositions read the elements of an argument themselves: lengths, places to split at.
void make_plain_what_is_read(const Call& call, torch::jit::Stack& stack) {
  for (const std::size_t index : call.notes().read_on_host) {
    c10::IValue& argument = stack[stack.size() - call.arguments().size() + index];
    if (const PayloadPtr payload = payload_of(argument.toTensor())) {
      const BelowAutograd below;
      argument = payload->whole();
    }
  }
}

// The op on plain whole tensors, its results replicated; autograd follows.
Values run_on_wholes(const Call& call) {
  torch::jit::Stack stack;
  for (const c10::IValue& argument : call.arguments()) {
    stack.push_back(with_tensors(argument, [](int, const at::Tensor& tensor) {
      const Payload* payload = payload_in(tensor);
      if (!payload) return tensor;
      const DTensorSpec whole = replicated_spec(payload->spec());
      return unwrap_tile(move_to(tensor, whole, CallMode::Sync, {}), whole);
    }));
  }
  const PassUsBy ours;
  call.op().callBoxed(stack);
  for (c10::IValue& result : stack) {
    result = with_tensors(result, [&](int, const at::Tensor& tensor) {
      const DTensorSpec spec = replicated_spec(call.mesh(), meta_of(tensor));
      return wrap_tile(tensor, spec, spec, call.world());
    });
  }
  return stack;
}

// By the plain form, or by whole operands.
Values run_with_out(const Call& call) {
  if (call.notes().change) return call.notes().change(call);
  if (const Recipe recipe = StrictMode::is_on() ? nullptr : by_plain_form(call)) {
    Values results = recipe(call.arguments());
    if (!results.empty()) return results;
  }
  return run_whole(call);
}

// out= has no gradient, in libtorch as here.
void check_no_gradient_is_lost(const Call& call) {
  if (!at::GradMode::is_enabled()) return;
  for (const TensorPlace& place : call.tensors()) {
    if (!place.tensor.defined() || !place.tensor.requires_grad()) continue;
    throw UsageError("a function with out= cannot be differentiated")
        .fact("op", call.text())
        .hint("leave out= away, or put a NoGradGuard around the call");
  }
}

}  // namespace

void CompositeKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                                 torch::jit::Stack* stack) {
  bool is_done = false;
  with_host_errors([&] {
    const CommLabel label(entry_.facts.name);
    const Call call(entry_, *stack);
    if (!call.has_dtensors()) return;
    if (!entry_.notes.takes_plain_tensors) call.check_plain_tensors();
    make_plain_what_is_read(call, *stack);
    const bool may_compose = entry_.notes.decomposition && !entry_.facts.has_out;
    if (const Recipe recipe = may_compose ? entry_.notes.decomposition(call) : nullptr) {
      replace_arguments(*stack, call.arguments().size(), recipe(call.arguments()));
      is_done = true;
      return;
    }
    if (entry_.notes.points_into_data && !entry_.facts.has_out && call.coordinate()) {
      check_may_gather(call);
      replace_arguments(*stack, call.arguments().size(), run_on_wholes(call));
      is_done = true;
      return;
    }
    if (entry_.notes.arranged && call.coordinate()) {
      replace_arguments(*stack, call.arguments().size(), entry_.notes.arranged(call));
    }
    if (!entry_.facts.has_out) return;
    check_no_gradient_is_lost(call);
    call.check_plain_tensors();
    replace_arguments(*stack, call.arguments().size(), run_with_out(call));
    is_done = true;
  });
  if (is_done) return;
  const ImplicitReplication own_tensors;
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
}

}  // namespace tegula::inner
