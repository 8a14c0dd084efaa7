#include "tegula/dispatch/strict.h"

#include "tegula/base/error.h"
#include "tegula/payload/guards.h"

namespace tegula::inner {

bool gives_numbers(const Call& call) {
  for (const c10::Argument& result : call.op().schema().returns()) {
    if (result.type()->kind() == c10::TypeKind::TensorType ||
        result.type()->kind() == c10::TypeKind::ListType) {
      return false;
    }
  }
  return !call.facts().writes;
}

void check_may_move(const Call& call, const LocalOpDraft& draft) {
  if (!draft.local_op.communicates || !StrictMode::is_on()) return;
  for (std::size_t k = 0; k < draft.local_op.routes.size(); ++k) {
    const auto& route = draft.local_op.routes[k];
    if (!route || !route->communicates()) continue;
    throw UsageError("an op would redistribute an operand unasked")
        .fact("op", call.text())
        .fact("plan", to_string(route->plan()))
        .hint("redistribute it before the call, or leave strict mode");
  }
}

void check_may_gather(const Call& call) {
  if (!StrictMode::is_on() || gives_numbers(call)) return;
  for (const TensorPlace& place : call.tensors()) {
    if (!place.payload) continue;
    if (place.payload->spec().is_replicated() && !place.payload->link()) continue;
    throw UsageError("an op would gather its operands: no rule covers it")
        .fact("op", call.text())
        .fact("plan", "gather " + to_string(place.payload->spec()))
        .hint("redistribute its operands to replicated before the call, or leave strict mode");
  }
}

void check_may_look(const Call& call) {
  if (!StrictMode::is_on() || gives_numbers(call)) return;
  for (const TensorPlace& place : call.tensors()) {
    const Link* link = place.payload ? place.payload->link() : nullptr;
    if (link == nullptr || link->base->spec().is_replicated()) continue;
    throw UsageError("an op would gather what one of its operands is a view of")
        .fact("op", call.text())
        .fact("plan", "gather " + to_string(link->base->spec()))
        .hint("redistribute that before the view is taken, or leave strict mode");
  }
}

}  // namespace tegula::inner
