// The idea: only one axis changes, so only ranks along it have what each other needs, and along all
// dims that it does not cut they hold the same. Along a dim that it cuts, every rank's part is a
// list of intervals; what arrives in the order of the ranks is put into the order of the shard by
// looking up places.
#include "tegula/plan/tile_step.h"

#include "tegula/base/error.h"

namespace tegula {
namespace {

using Sizes = std::vector<std::int64_t>;

UsageError refusal(const DTensorSpec& before, const DTensorSpec& after, const std::string& why) {
  return UsageError("one step does not lead there: " + why)
      .fact("from", to_string(before))
      .fact("to", to_string(after))
      .hint("waypoints(from, to) lists the steps that do");
}

std::vector<CutAxis> without_last(std::vector<CutAxis> cutters, std::size_t axis) {
  if (!cutters.empty() && cutters.back().axis == axis) cutters.pop_back();
  return cutters;
}

// The one axis whose placement changes.
std::size_t changed_axis(const DTensorSpec& before, const DTensorSpec& after) {
  if (before.mesh() != after.mesh() || before.shape() != after.shape() ||
      before.meta().dtype() != after.meta().dtype()) {
    throw refusal(before, after, "mesh, shape and element type must be the same");
  }
  std::optional<std::size_t> changed;
  for (std::size_t axis = 0; axis < before.mesh().ndim(); ++axis) {
    if (before.placements()[axis] == after.placements()[axis]) continue;
    if (changed) throw refusal(before, after, "more than one axis changes");
    changed = axis;
  }
  if (!changed) throw refusal(before, after, "no axis changes");
  for (std::size_t dim = 0; dim < before.dim_cuts().size(); ++dim) {
    if (without_last(before.dim_cuts()[dim].axes(), *changed) !=
        without_last(after.dim_cuts()[dim].axes(), *changed)) {
      throw refusal(before, after, "dim " + std::to_string(dim) + " is cut by later axes too");
    }
  }
  return *changed;
}

std::optional<Pick> pick(std::int64_t dim, const Intervals& wanted, const Intervals& held) {
  Intervals parts = places_of(wanted, held);
  const std::int64_t all = count(held);
  if (parts == Intervals{{0, all}} || all == 0) return std::nullopt;
  return Pick{dim, std::move(parts)};
}

Sizes counts(const std::vector<Intervals>& lists) {
  Sizes sizes;
  for (const Intervals& list : lists) sizes.push_back(count(list));
  return sizes;
}

Intervals joined(const std::vector<Intervals>& lists) {
  Intervals all;
  for (const Intervals& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

class Stepper {
 public:
  Stepper(const DTensorSpec& before, const DTensorSpec& after, const Coordinate& coordinate)
      : before_(before),
        after_(after),
        coordinate_(coordinate),
        axis_(changed_axis(before, after)),
        index_(static_cast<std::size_t>(coordinate.at(axis_))) {}

  TileStep step() const {
    if (before_.mesh().axes()[axis_].size == 1) return {axis_, {}, move::Stay{}, {}};
    const Placement& now = before_.placements()[axis_];
    const Placement& then = after_.placements()[axis_];
    if (const Shard* from = as_shard(now)) {
      if (const Shard* to = as_shard(then)) {
        return from->dim() == to->dim() ? recut(from->dim()) : turn(from->dim(), to->dim());
      }
      return is_replicate(then) ? gather(from->dim()) : pad(from->dim());
    }
    if (const Shard* to = as_shard(then)) {
      return is_replicate(now) ? slice(to->dim()) : reduce_scatter(to->dim());
    }
    if (is_replicate(now)) return {axis_, {}, owe(), {}};
    if (is_replicate(then)) return {axis_, {}, move::AllReduce{*owed_reduction(now)}, {}};
    if (!std::holds_alternative<MaskPartial>(now) || !is_sum(then)) {
      throw refusal(before_, after_, "the reduction has to be done first");
    }
    return {axis_, {}, move::Stay{}, {}};
  }

 private:
  static bool is_sum(const Placement& placement) {
    return owed_reduction(placement) == ReduceOp::Sum;
  }

  Intervals held(const DTensorSpec& spec, std::int64_t dim) const {
    return spec.dim_cuts()[static_cast<std::size_t>(dim)].intervals(coordinate_);
  }

  // Of every rank along the axis.
  std::vector<Intervals> held_by_all(const DTensorSpec& spec, std::int64_t dim) const {
    std::vector<Intervals> lists;
    Coordinate member = coordinate_;
    for (std::int64_t rank = 0; rank < spec.mesh().axes()[axis_].size; ++rank) {
      member[axis_] = rank;
      lists.push_back(spec.dim_cuts()[static_cast<std::size_t>(dim)].intervals(member));
    }
    return lists;
  }

  TileStep gather(std::int64_t dim) const {
    const std::vector<Intervals> shards = held_by_all(before_, dim);
    return {axis_,
            {},
            move::AllGather{dim, counts(shards)},
            pick(dim, held(after_, dim), joined(shards))};
  }

  TileStep slice(std::int64_t dim) const {
    return {axis_, pick(dim, held(after_, dim), held(before_, dim)), move::Stay{}, {}};
  }

  TileStep reduce_scatter(std::int64_t dim) const {
    const std::vector<Intervals> shards = held_by_all(after_, dim);
    const ReduceOp op = *owed_reduction(before_.placements()[axis_]);
    return {axis_,
            pick(dim, joined(shards), held(before_, dim)),
            move::ReduceScatter{dim, op, counts(shards)},
            {}};
  }

  // From shards of one dim to shards of another.
  TileStep turn(std::int64_t from, std::int64_t to) const {
    const std::vector<Intervals> given = held_by_all(after_, to);
    const std::vector<Intervals> taken = held_by_all(before_, from);
    return {axis_, pick(to, joined(given), held(before_, to)),
            move::AllToAll{to, from, counts(given), counts(taken)},
            pick(from, held(after_, from), joined(taken))};
  }

  // From one way to cut a dim to another.
  TileStep recut(std::int64_t dim) const {
    const std::vector<Intervals> old_shards = held_by_all(before_, dim);
    const std::vector<Intervals> new_shards = held_by_all(after_, dim);
    std::vector<Intervals> given, taken;
    for (const Intervals& shard : new_shards) given.push_back(common(shard, old_shards[index_]));
    for (const Intervals& shard : old_shards) taken.push_back(common(new_shards[index_], shard));
    return {axis_, pick(dim, joined(given), old_shards[index_]),
            move::AllToAll{dim, dim, counts(given), counts(taken)},
            pick(dim, new_shards[index_], joined(taken))};
  }

  TileStep pad(std::int64_t dim) const {
    if (!is_sum(after_.placements()[axis_])) {
      throw refusal(before_, after_, "zeros around a shard make it part of a sum only");
    }
    const Intervals whole = held(after_, dim);
    return {axis_, {}, move::Pad{dim, count(whole), places_of(held(before_, dim), whole)}, {}};
  }

  // Parts that reduce to the value: it itself on one rank and what changes nothing on the others,
  // or the value on all.
  TileMove owe() const {
    switch (*owed_reduction(after_.placements()[axis_])) {
      case ReduceOp::Sum:
      case ReduceOp::Bxor:
        return index_ == 0 ? TileMove(move::Stay{}) : move::Fill{0};
      case ReduceOp::Product:
        return index_ == 0 ? TileMove(move::Stay{}) : move::Fill{1};
      case ReduceOp::Avg:
      case ReduceOp::Min:
      case ReduceOp::Max:
      case ReduceOp::Band:
      case ReduceOp::Bor:
        return move::Stay{};
    }
    throw InternalError("a ReduceOp has a value outside of its enum");
  }

  const DTensorSpec& before_;
  const DTensorSpec& after_;
  const Coordinate& coordinate_;
  std::size_t axis_;
  std::size_t index_;
};

}  // namespace

bool communicates(const TileStep& step) {
  return !std::holds_alternative<move::Stay>(step.move) &&
         !std::holds_alternative<move::Fill>(step.move) &&
         !std::holds_alternative<move::Pad>(step.move);
}

TileStep step_at(const DTensorSpec& before, const DTensorSpec& after,
                 const Coordinate& coordinate) {
  return Stepper(before, after, coordinate).step();
}

}  // namespace tegula
