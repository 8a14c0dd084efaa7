// The idea: the universal path for the calls that need something around it, and plain calls.
#include <ATen/ATen.h>

#include <set>

#include "tegula/bridge/seed_word.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/build.h"
#include "tegula/dispatch/gather_warning.h"
#include "tegula/dispatch/kernel.h"
#include "tegula/dispatch/strict.h"
#include "tegula/dispatch/universal.h"
#include "tegula/operators/call.h"
#include "tegula/payload/local_call.h"
#include "tegula/random/random.h"

namespace tegula::inner {
namespace {

// A random op that is computed whole: every rank draws the same numbers.
Values run_random(const Call& call) {
  const std::optional<std::size_t>& place = call.facts().generator;
  const bool given = place && !call.arguments()[*place].isNone();
  const Draw draw =
      given ? next_draw(call.world(), call.mesh(), call.arguments()[*place].toGenerator())
            : next_draw(call.world(), call.mesh());
  const at::Generator generator = replicated_generator(draw);
  if (place) return run_universal(call.with_argument(*place, generator));
  // Such an op draws from libtorch's own generator. Operands are gathered before, so that no rank
  // waits for another while it has the generator.
  return run_universal(call, [&](const std::function<Values()>& op) {
    Values results;
    run_with_default(generator, device_of(call.mesh()), [&] { results = op(); });
    return results;
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
    run_universal(Call(call.entry(), arguments));
  }
  return {};
}

}  // namespace

Values run_whole(const Call& call) {
  check_may_gather(call);
  warn_of_gather(call);
  if (call.notes().writes_in_order && call.facts().return_is.empty() && writes_share_memory(call)) {
    return run_by_member(call);
  }
  return call.facts().is_random ? run_random(call) : run_universal(call);
}

Values run_without_dtensors(const Call& call) {
  if (std::optional<at::Tensor> built = build_distributed(call)) return {*built};
  const PassUsBy plain;
  Values arguments = call.arguments();
  call.op().callBoxed(&arguments);
  return arguments;
}

}  // namespace tegula::inner
