// The table of transitions names the step, step_cost.h prices it; what is left to decide here is
// which steps an operator may ask for.
#include "tegula/propagate/transition_cost.h"

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

bool is_made_unasked(StepKind kind, Owing owing) {
  switch (kind) {
    case StepKind::AllGather:
    case StepKind::AllToAll:
    case StepKind::ReduceScatter:
    case StepKind::AllReduce:
    case StepKind::Permute:
    case StepKind::Slice:
    case StepKind::Rename:
      return true;
    case StepKind::Owe:
      return owing == Owing::Allowed;
    case StepKind::Pad:
      return false;
  }
  throw InternalError("a StepKind has a value outside of its enum");
}

StepCost cost_on_tile(StepKind kind, const Rates& rates, std::int64_t bytes) {
  return cost_of(kind, rates, bytes, bytes_after(kind, rates, bytes));
}

}  // namespace

std::optional<TransitionCost> transition_cost(const Placement& from, const Placement& to,
                                              std::int64_t bytes, const Rates& rates, Owing owing) {
  if (same_but_for_cut(from, to)) return TransitionCost{};
  const std::optional<StepKind> kind = step_kind(from, to);
  if (!kind || !is_made_unasked(*kind, owing)) return std::nullopt;
  return TransitionCost{communicates(*kind), cost_on_tile(*kind, rates, bytes).picoseconds};
}

std::int64_t debt_cost(const Placement& result, std::int64_t bytes, const Rates& rates) {
  if (!owed_reduction(result)) return 0;
  const StepKind kind = *step_kind(result, Replicate());
  return time_of(rates, 1, cost_on_tile(kind, rates, bytes).bytes_sent, 0);
}

}  // namespace tegula::inner
