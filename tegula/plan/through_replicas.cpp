// Reductions first (they may not commute with those to come), then gathers, one per dim; then the
// tiles shrink, one dim at a time, and at last reductions are owed. At most two steps per dim and
// two per kind of reduction.
#include "tegula/plan/through_replicas.h"

#include <algorithm>
#include <optional>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

using Axes = std::vector<std::size_t>;

class Walk {
 public:
  Walk(const DTensorSpec& from, const DTensorSpec& to)
      : from_(from),
        to_(to),
        placements_(from.placements()),
        cutters_(static_cast<std::size_t>(from.ndim())) {
    for (const ShardOrderEntry& entry : from.shard_order()) cutters_of(entry.dim) = entry.axes;
    for (std::size_t axis = 0; axis < placements_.size(); ++axis) {
      if (is_small(axis)) replicate(axis);
    }
  }

  std::vector<DTensorSpec> specs() {
    for (ReduceOp op : kReduceOps) reduce(op);
    for (std::int64_t dim = 0; dim < from_.ndim(); ++dim) gather(dim);
    for (const ShardOrderEntry& entry : to_.shard_order()) slice(entry);
    for (ReduceOp op : kReduceOps) owe(op);
    if (specs_.empty()) specs_.push_back(to_);
    specs_.back() = to_;  // with its axes of one rank
    return std::move(specs_);
  }

 private:
  bool is_small(std::size_t axis) const { return from_.mesh().axes()[axis].size == 1; }
  Axes& cutters_of(std::int64_t dim) { return cutters_[static_cast<std::size_t>(dim)]; }

  void replicate(std::size_t axis) {
    if (const Shard* shard = as_shard(placements_[axis]))
      std::erase(cutters_of(shard->dim()), axis);
    placements_[axis] = Replicate();
  }

  void arrive() {
    ShardOrder order;
    for (std::size_t dim = 0; dim < cutters_.size(); ++dim) {
      if (!cutters_[dim].empty()) order.push_back({static_cast<std::int64_t>(dim), cutters_[dim]});
    }
    specs_.emplace_back(from_.mesh(), placements_, order, to_.meta());
  }

  template <class Condition, class Change>
  void change_where(Condition condition, Change change) {
    bool is_changed = false;
    for (std::size_t axis = 0; axis < placements_.size(); ++axis) {
      if (is_small(axis) || placements_[axis] == to_.placements()[axis] || !condition(axis))
        continue;
      change(axis);
      is_changed = true;
    }
    if (is_changed) arrive();
  }

  void reduce(ReduceOp op) {
    change_where([&](std::size_t axis) { return owed_reduction(placements_[axis]) == op; },
                 [&](std::size_t axis) { replicate(axis); });
  }

  void owe(ReduceOp op) {
    change_where([&](std::size_t axis) { return owed_reduction(to_.placements()[axis]) == op; },
                 [&](std::size_t axis) { placements_[axis] = to_.placements()[axis]; });
  }

  // The axes that should cut the dim.
  Axes goal(std::int64_t dim) const {
    for (const ShardOrderEntry& entry : to_.shard_order()) {
      if (entry.dim != dim) continue;
      Axes axes = entry.axes;
      std::erase_if(axes, [&](std::size_t axis) { return is_small(axis); });
      return axes;
    }
    return {};
  }

  void gather(std::int64_t dim) {
    const Axes now = cutters_of(dim);
    const Axes then = goal(dim);
    const auto same = [&](std::size_t a, std::size_t b) {
      return a == b && from_.placements()[a] == to_.placements()[a];
    };
    const auto leave = std::mismatch(now.begin(), now.end(), then.begin(), then.end(), same).first;
    if (leave == now.end()) return;
    for (auto axis = leave; axis != now.end(); ++axis) replicate(*axis);
    arrive();
  }

  void slice(const ShardOrderEntry& entry) {
    const Axes axes = goal(entry.dim);
    if (axes == cutters_of(entry.dim)) return;
    for (std::size_t axis : axes) placements_[axis] = to_.placements()[axis];
    cutters_of(entry.dim) = axes;
    arrive();
  }

  const DTensorSpec& from_;
  const DTensorSpec& to_;
  Placements placements_;
  std::vector<Axes> cutters_;  // by dim, the first to cut first
  std::vector<DTensorSpec> specs_;
};

}  // namespace

std::vector<DTensorSpec> through_replicas(const DTensorSpec& from, const DTensorSpec& to) {
  return Walk(from, to).specs();
}

}  // namespace tegula::inner
