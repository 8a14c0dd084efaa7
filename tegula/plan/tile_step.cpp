// The idea: only some axes change, so only ranks along them have what each other needs, and along
// all dims that they do not cut they hold the same. Along a dim that they cut, every rank's part is
// a list of intervals; what arrives in the order of the ranks is put into the order of the shard by
// looking up places. Several axes are one group whose ranks are counted through.
#include "tegula/plan/tile_step.h"

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/overloaded.h"
#include "tegula/base/saturating.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

using Sizes = std::vector<std::int64_t>;

UsageError refusal(const DTensorSpec& before, const DTensorSpec& after, const std::string& why) {
  return UsageError("one step does not lead there: " + why)
      .fact("from", to_string(before))
      .fact("to", to_string(after))
      .hint("RedistributePlanner().plan(from, to) lists the steps that do");
}

// The axes that cut a dim, without those of one rank.
std::vector<CutAxis> cutting_axes(const DTensorSpec& spec, std::size_t dim) {
  std::vector<CutAxis> result;
  for (const CutAxis& axis : spec.dim_cuts()[dim].axes()) {
    if (axis.ranks > 1) result.push_back(axis);
  }
  return result;
}

// Collects axes, each once, in the order in which they are met.
class Changes {
 public:
  explicit Changes(std::size_t axes) : is_met_(axes, false) {}
  void add(std::size_t axis) {
    if (!is_met_[axis]) axes_.push_back(axis);
    is_met_[axis] = true;
  }
  const std::vector<std::size_t>& axes() const { return axes_; }

 private:
  std::vector<bool> is_met_;
  std::vector<std::size_t> axes_;
};

Changes changes_between(const DTensorSpec& before, const DTensorSpec& after) {
  Changes changes(before.mesh().ndim());
  std::vector<CutAxis> arriving;
  for (std::size_t dim = 0; dim < before.dim_cuts().size(); ++dim) {
    const std::vector<CutAxis> now = cutting_axes(before, dim);
    const std::vector<CutAxis> then = cutting_axes(after, dim);
    const auto [leave, arrive] = std::mismatch(now.begin(), now.end(), then.begin(), then.end());
    for (auto axis = leave; axis != now.end(); ++axis) changes.add(axis->axis);
    arriving.insert(arriving.end(), arrive, then.end());
  }
  for (const CutAxis& axis : arriving) changes.add(axis.axis);
  for (std::size_t axis = 0; axis < before.mesh().ndim(); ++axis) {
    const bool is_alike = before.placements()[axis] == after.placements()[axis];
    if (!is_alike && before.mesh().axes()[axis].size > 1) changes.add(axis);
  }
  return changes;
}

// Whether axes with these placements hold alike: R, cutting one dim, owing one reduction.
bool are_alike(const Placement& a, const Placement& b) {
  const auto owes_as_a = [&] { return owed_reduction(a) == owed_reduction(b); };
  return std::visit(Overloaded{
                        [&](const Replicate&) { return is_replicate(b); },
                        [&](const Shard&) { return same_but_for_cut(a, b); },
                        [&](const Partial&) { return owes_as_a(); },
                        [&](const MaskPartial&) { return owes_as_a(); },
                    },
                    a);
}

std::string why_not(const Placement& now) {
  const auto* pad = "zeros around a shard make it part of a sum only";
  const auto* reduce = "the reduction has to be done first";
  return std::visit(Overloaded{
                        [](const Replicate&) { return "nothing changes"; },
                        [&](const Shard&) { return pad; },
                        [&](const Partial&) { return reduce; },
                        [&](const MaskPartial&) { return reduce; },
                    },
                    now);
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
        axes_(changed_axes(before, after)),
        ranks_(1) {
    for (std::size_t axis : axes_) {
      const std::int64_t size = before.mesh().axes()[axis].size;
      index_ =
          index_ * static_cast<std::size_t>(size) + static_cast<std::size_t>(coordinate.at(axis));
      ranks_ *= size;
    }
  }

  TileStep step() const {
    switch (step_kind(before_, after_, axes_)) {
      case StepKind::AllGather:
        return gather(dim_at(before_));
      case StepKind::AllToAll:
      case StepKind::Permute:
        return dim_at(before_) == dim_at(after_) ? recut(dim_at(before_))
                                                 : turn(dim_at(before_), dim_at(after_));
      case StepKind::ReduceScatter:
        return reduce_scatter(dim_at(after_));
      case StepKind::AllReduce:
        return {axes_, {}, move::AllReduce{op_at(before_)}, {}};
      case StepKind::Slice:
        return slice(dim_at(after_));
      case StepKind::Owe:
        return {axes_, {}, owe(), {}};
      case StepKind::Pad:
        return pad(dim_at(before_));
      case StepKind::Rename:
        return {axes_, {}, move::Stay{}, {}};
    }
    throw InternalError("a StepKind has a value outside of its enum");
  }

 private:
  // The dim that the axes cut, and the reduction that they owe, at an end of a step that says so.
  std::int64_t dim_at(const DTensorSpec& end) const {
    return as_shard(end.placements()[axes_.front()])->dim();
  }
  ReduceOp op_at(const DTensorSpec& end) const {
    return *owed_reduction(end.placements()[axes_.front()]);
  }

  // Of `ranks` ranks together; what is too long to be listed is refused before it is.
  void check_length(const DTensorSpec& spec, std::int64_t dim, std::int64_t ranks) const {
    constexpr std::int64_t kMostIntervals = std::int64_t{1} << 22;
    const std::int64_t intervals = spec.dim_cuts()[static_cast<std::size_t>(dim)].most_intervals();
    if (saturating_product(intervals, ranks) <= kMostIntervals) return;
    throw UsageError("a step would take a tile apart into more pieces than can be listed")
        .fact("from", to_string(before_))
        .fact("to", to_string(after_))
        .fact("most", std::to_string(kMostIntervals) + " pieces of the ranks of a group together")
        .hint("cut dim " + std::to_string(dim) + " into fewer blocks");
  }

  Intervals held(const DTensorSpec& spec, std::int64_t dim) const {
    check_length(spec, dim, 1);
    return spec.dim_cuts()[static_cast<std::size_t>(dim)].intervals(coordinate_);
  }

  // Where the rank of this number in the group is.
  Coordinate member(std::int64_t rank) const {
    Coordinate coordinate = coordinate_;
    for (std::size_t i = axes_.size(); i-- > 0;) {
      const std::int64_t size = before_.mesh().axes()[axes_[i]].size;
      coordinate[axes_[i]] = rank % size;
      rank /= size;
    }
    return coordinate;
  }

  // Of every rank of the group.
  std::vector<Intervals> held_by_all(const DTensorSpec& spec, std::int64_t dim) const {
    check_length(spec, dim, ranks_);
    std::vector<Intervals> lists;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      lists.push_back(spec.dim_cuts()[static_cast<std::size_t>(dim)].intervals(member(rank)));
    }
    return lists;
  }

  TileStep gather(std::int64_t dim) const {
    const std::vector<Intervals> shards = held_by_all(before_, dim);
    return {axes_,
            {},
            move::AllGather{dim, counts(shards)},
            pick(dim, held(after_, dim), joined(shards))};
  }

  TileStep slice(std::int64_t dim) const {
    return {axes_, pick(dim, held(after_, dim), held(before_, dim)), move::Stay{}, {}};
  }

  TileStep reduce_scatter(std::int64_t dim) const {
    const std::vector<Intervals> shards = held_by_all(after_, dim);
    return {axes_,
            pick(dim, joined(shards), held(before_, dim)),
            move::ReduceScatter{dim, op_at(before_), counts(shards)},
            {}};
  }

  // From shards of one dim to shards of another.
  TileStep turn(std::int64_t from, std::int64_t to) const {
    const std::vector<Intervals> given = held_by_all(after_, to);
    const std::vector<Intervals> taken = held_by_all(before_, from);
    return {axes_, pick(to, joined(given), held(before_, to)),
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
    return {axes_, pick(dim, joined(given), old_shards[index_]),
            move::AllToAll{dim, dim, counts(given), counts(taken)},
            pick(dim, new_shards[index_], joined(taken))};
  }

  TileStep pad(std::int64_t dim) const {
    const Intervals whole = held(after_, dim);
    return {axes_, {}, move::Pad{dim, count(whole), places_of(held(before_, dim), whole)}, {}};
  }

  // Parts that reduce to the value: it itself on one rank and what changes nothing on the others,
  // or the value on all.
  TileMove owe() const {
    switch (op_at(after_)) {
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
  std::vector<std::size_t> axes_;
  std::int64_t ranks_;
  std::size_t index_ = 0;  // of this rank in the group
};

}  // namespace

bool communicates(const TileStep& step) {
  return std::visit(Overloaded{
                        [](const move::Stay&) { return false; },
                        [](const move::Fill&) { return false; },
                        [](const move::Pad&) { return false; },
                        [](const move::AllReduce&) { return true; },
                        [](const move::AllGather&) { return true; },
                        [](const move::ReduceScatter&) { return true; },
                        [](const move::AllToAll&) { return true; },
                    },
                    step.move);
}

std::vector<std::size_t> changed_axes(const DTensorSpec& before, const DTensorSpec& after) {
  if (before.mesh() != after.mesh() || before.shape() != after.shape() ||
      before.meta().dtype() != after.meta().dtype()) {
    throw refusal(before, after, "mesh, shape and element type must be the same");
  }
  const std::vector<std::size_t> axes = changes_between(before, after).axes();
  if (axes.empty() && before.placements() == after.placements() &&
      before.shard_order() == after.shard_order()) {
    throw refusal(before, after, "nothing changes");
  }
  for (std::size_t axis : axes) {
    if (are_alike(before.placements()[axis], before.placements()[axes.front()]) &&
        are_alike(after.placements()[axis], after.placements()[axes.front()])) {
      continue;
    }
    const auto name = [&](std::size_t index) {
      return in_quotes(before.mesh().axes()[index].name);
    };
    throw refusal(before, after,
                  name(axes.front()) + " and " + name(axis) + " do not change alike");
  }
  return axes;
}

StepKind step_kind(const DTensorSpec& before, const DTensorSpec& after,
                   const std::vector<std::size_t>& axes) {
  if (axes.empty()) return StepKind::Rename;
  const auto kind_of_axis = [&](std::size_t axis) {
    return step_kind(before.placements()[axis], after.placements()[axis]);
  };
  const std::optional<StepKind> kind = kind_of_axis(axes.front());
  for (std::size_t axis : axes) {
    if (kind && kind_of_axis(axis) == kind) continue;
    throw refusal(before, after, why_not(before.placements()[axis]));
  }
  const bool permutes =
      kind == StepKind::AllToAll && axes.size() > 1 &&
      same_but_for_cut(before.placements()[axes.front()], after.placements()[axes.front()]);
  return permutes ? StepKind::Permute : *kind;
}

TileStep step_at(const DTensorSpec& before, const DTensorSpec& after,
                 const Coordinate& coordinate) {
  return Stepper(before, after, coordinate).step();
}

}  // namespace tegula::inner
