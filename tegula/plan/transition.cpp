// The placements' kinds and the reduction that is owed are all that a transition depends on.
#include "tegula/plan/transition.h"

#include "tegula/base/error.h"

namespace tegula {
namespace {

bool is_of_sums_only(StepKind kind) {
  switch (kind) {
    case StepKind::Pad:
    case StepKind::Rename:
      return true;
    case StepKind::AllGather:
    case StepKind::AllToAll:
    case StepKind::ReduceScatter:
    case StepKind::AllReduce:
    case StepKind::Permute:
    case StepKind::Slice:
    case StepKind::Owe:
      return false;
  }
  throw InternalError("a StepKind has a value outside of its enum");
}

}  // namespace

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::AllGather:
      return "all-gather";
    case StepKind::AllToAll:
      return "all-to-all";
    case StepKind::ReduceScatter:
      return "reduce-scatter";
    case StepKind::AllReduce:
      return "all-reduce";
    case StepKind::Permute:
      return "permute";
    case StepKind::Slice:
      return "slice";
    case StepKind::Owe:
      return "owe";
    case StepKind::Pad:
      return "pad";
    case StepKind::Rename:
      return "rename";
  }
  throw InternalError("a StepKind has a value outside of its enum");
}

bool communicates(StepKind kind) {
  switch (kind) {
    case StepKind::AllGather:
    case StepKind::AllToAll:
    case StepKind::ReduceScatter:
    case StepKind::AllReduce:
    case StepKind::Permute:
      return true;
    case StepKind::Slice:
    case StepKind::Owe:
    case StepKind::Pad:
    case StepKind::Rename:
      return false;
  }
  throw InternalError("a StepKind has a value outside of its enum");
}

std::optional<StepKind> step_kind(const Placement& from, const Placement& to) {
  const std::optional<StepKind> kind = step_kind(kind_of(from), kind_of(to));
  if (kind && is_of_sums_only(*kind) && owed_reduction(to) != ReduceOp::Sum) return std::nullopt;
  return kind;
}

}  // namespace tegula
