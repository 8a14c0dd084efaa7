// The idea: an axis is at its goal if it is placed as it should be and, where it cuts, so are all
// axes that cut the dim before it. An axis at its goal never moves again. An axis can go to its
// goal once the dim is cut by exactly the axes that should cut it before. So take what can go there
// directly, what shrinks tiles first; if nothing can, move something out of the way:
//
//   R -> S, P -> S, S -> S    to the goal; the tile shrinks or keeps its size
//   P -> R                    unless the goal is a shard, which may come within reach
//   S -> P, S -> R            the last axis of a dim, if not at its goal
//   R -> P                    when all else is done: reductions that do not commute never meet
//
// An axis leaves for R at most once and reaches its goal from there, so there are at most two steps
// per axis. Cost: O(steps * axes * dims).
#include "tegula/plan/axis_by_axis.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "tegula/base/error.h"

namespace tegula {
namespace {

const std::vector<CutAxis>& cutters(const DTensorSpec& spec, std::int64_t dim) {
  return spec.dim_cuts()[static_cast<std::size_t>(dim)].axes();
}

auto place_of(const std::vector<CutAxis>& cutters, std::size_t axis) {
  return std::find_if(cutters.begin(), cutters.end(),
                      [&](const CutAxis& cutter) { return cutter.axis == axis; });
}

bool is_at_goal(const DTensorSpec& at, const DTensorSpec& to, std::size_t axis) {
  if (at.placements()[axis] != to.placements()[axis]) return false;
  const Shard* shard = as_shard(to.placements()[axis]);
  if (shard == nullptr) return true;
  const auto& now = cutters(at, shard->dim());
  const auto& goal = cutters(to, shard->dim());
  const auto length = place_of(goal, axis) + 1 - goal.begin();
  return length <= static_cast<std::ptrdiff_t>(now.size()) &&
         std::equal(goal.begin(), goal.begin() + length, now.begin());
}

// Cuts nothing, or is the last to cut its dim.
bool can_leave(const DTensorSpec& at, std::size_t axis) {
  const Shard* shard = as_shard(at.placements()[axis]);
  return shard == nullptr || cutters(at, shard->dim()).back().axis == axis;
}

// The goal is a shard, and its dim is cut by exactly the axes that should cut before this one.
bool can_enter(const DTensorSpec& at, const DTensorSpec& to, std::size_t axis) {
  const Shard* shard = as_shard(to.placements()[axis]);
  if (shard == nullptr) return false;
  const auto& now = cutters(at, shard->dim());
  const auto& goal = cutters(to, shard->dim());
  return std::equal(goal.begin(), place_of(goal, axis), now.begin(), place_of(now, axis));
}

DTensorSpec with_axis_as(const DTensorSpec& at, std::size_t axis, const Placement& placement) {
  Placements placements = at.placements();
  placements[axis] = placement;
  ShardOrder order;
  for (std::int64_t dim = 0; dim < at.ndim(); ++dim) {
    ShardOrderEntry entry{dim, {}};
    for (const CutAxis& cutter : cutters(at, dim)) {
      if (cutter.axis != axis) entry.axes.push_back(cutter.axis);
    }
    const Shard* shard = as_shard(placement);
    if (shard != nullptr && shard->dim() == dim) entry.axes.push_back(axis);
    if (!entry.axes.empty()) order.push_back(std::move(entry));
  }
  return {at.mesh(), placements, order, at.meta()};
}

bool owes_commuting_reductions(const DTensorSpec& at, ReduceOp op) {
  return std::all_of(at.placements().begin(), at.placements().end(), [&](const Placement& other) {
    const std::optional<ReduceOp> owed = owed_reduction(other);
    return !owed || commute(*owed, op);
  });
}

// Where an axis goes that has to leave its dim: zeros around a shard make it part of a sum.
Placement way_out(const DTensorSpec& at, const DTensorSpec& to, std::size_t axis) {
  const Placement& goal = to.placements()[axis];
  const bool is_sum = owed_reduction(goal) == ReduceOp::Sum;
  return is_sum && owes_commuting_reductions(at, ReduceOp::Sum) ? goal : Replicate();
}

// One step, or the question whether it can be taken.
struct Walk {
  const DTensorSpec& at;
  const DTensorSpec& to;

  std::size_t axes() const { return at.mesh().ndim(); }
  const Placement& now(std::size_t axis) const { return at.placements()[axis]; }
  const Placement& goal(std::size_t axis) const { return to.placements()[axis]; }
  DTensorSpec to_goal(std::size_t axis) const { return with_axis_as(at, axis, goal(axis)); }

  template <class Condition>
  std::optional<std::size_t> first_waiting(Condition condition) const {
    for (std::size_t axis = 0; axis < axes(); ++axis) {
      if (!is_at_goal(at, to, axis) && condition(axis)) return axis;
    }
    return std::nullopt;
  }

  std::optional<DTensorSpec> shard() const {
    const auto enters = [&](std::size_t axis) {
      return can_leave(at, axis) && can_enter(at, to, axis);
    };
    auto axis = first_waiting([&](std::size_t a) { return is_replicate(now(a)) && enters(a); });
    if (!axis) {
      axis = first_waiting([&](std::size_t a) { return owed_reduction(now(a)) && enters(a); });
    }
    if (!axis) axis = first_waiting(enters);
    if (!axis) return std::nullopt;
    return to_goal(*axis);
  }

  std::optional<DTensorSpec> reduce() const {
    const auto axis = first_waiting(
        [&](std::size_t a) { return owed_reduction(now(a)) && as_shard(goal(a)) == nullptr; });
    if (!axis) return std::nullopt;
    const bool is_any_sum = std::holds_alternative<MaskPartial>(now(*axis)) &&
                            owed_reduction(goal(*axis)) == ReduceOp::Sum;
    return is_any_sum ? to_goal(*axis) : with_axis_as(at, *axis, Replicate());
  }

  // What has to be gathered anyway first, then what makes tiles grow least.
  std::optional<DTensorSpec> clear() const {
    std::optional<std::size_t> best;
    const auto price = [&](std::size_t axis) {
      const int kind = is_replicate(goal(axis)) ? 0 : as_shard(goal(axis)) == nullptr ? 1 : 2;
      return std::tuple(kind, at.mesh().axes()[axis].size);
    };
    for (std::size_t axis = 0; axis < axes(); ++axis) {
      if (as_shard(now(axis)) == nullptr || !can_leave(at, axis) || is_at_goal(at, to, axis)) {
        continue;
      }
      if (!best || price(axis) <= price(*best)) best = axis;
    }
    if (!best) return std::nullopt;
    return with_axis_as(at, *best, way_out(at, to, *best));
  }

  std::optional<DTensorSpec> owe() const {
    const auto axis = first_waiting(
        [&](std::size_t a) { return is_replicate(now(a)) && owed_reduction(goal(a)).has_value(); });
    if (!axis) return std::nullopt;
    return to_goal(*axis);
  }

  DTensorSpec next() const {
    if (auto step = shard()) return *step;
    if (auto step = reduce()) return *step;
    if (auto step = clear()) return *step;
    if (auto step = owe()) return *step;
    throw InternalError("no step leads on").fact("at", to_string(at)).fact("to", to_string(to));
  }
};

}  // namespace

std::vector<DTensorSpec> waypoints(const DTensorSpec& from, const DTensorSpec& to) {
  if (from.mesh() != to.mesh() || from.shape() != to.shape() ||
      from.meta().dtype() != to.meta().dtype()) {
    throw UsageError("a tensor is redistributed over its own mesh, as what it is")
        .fact("from", to_string(from))
        .fact("to", to_string(to))
        .hint("give two specs with one mesh, shape and element type");
  }
  std::vector<DTensorSpec> result;
  for (DTensorSpec at = from.with_meta(to.meta()); at != to;) {
    at = Walk{at, to}.next();
    result.push_back(at);
  }
  return result;
}

}  // namespace tegula
