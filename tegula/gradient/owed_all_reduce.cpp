#include "tegula/gradient/owed_all_reduce.h"

#include "tegula/redistribute/carry_out.h"
#include "tegula/redistribute/routes.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {

std::optional<OwedAllReduce> owed_all_reduce(const Payload& grad, const DTensorSpec& wanted,
                                             const RouteOptions& options) {
  const std::optional<Coordinate> at = grad.coordinate();
  if (!at || grad.link()) return std::nullopt;
  const DTensorSpec from = densely(grad.spec());
  const Route route = grad.world().part<Routes>().find_or_make(grad.world(), from, wanted, options);
  const std::vector<Step>& steps = route.plan().steps;
  if (steps.size() != 1) return std::nullopt;
  const TileStep step = step_at(steps[0].before, steps[0].after, *at);
  const auto* call = std::get_if<move::AllReduce>(&step.move);
  if (call == nullptr || step.before || step.after) return std::nullopt;
  return OwedAllReduce{*group_along(grad.world(), wanted.mesh(), step), call->op};
}

}  // namespace tegula::inner
