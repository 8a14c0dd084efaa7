// ViewDraft: placements and shard order of a view under construction. What a tensor owes, its view
// owes; cuts are put in dim by dim.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

class ViewDraft {
 public:
  explicit ViewDraft(const DTensorSpec& spec) : spec_(spec), placements_(spec.placements()) {
    for (Placement& placement : placements_) {
      if (as_shard(placement)) placement = Replicate();
    }
  }

  // These axes cut this dim of the view, in this order.
  void cut(std::int64_t dim, const std::vector<CutAxis>& axes) {
    if (axes.empty()) return;
    ShardOrderEntry entry{dim, {}};
    for (const CutAxis& axis : axes) {
      placements_[axis.axis] = Shard(dim, axis.cut);
      entry.axes.push_back(axis.axis);
    }
    order_.push_back(std::move(entry));
  }

  DTensorSpec finish(const TensorMeta& meta) {
    std::sort(order_.begin(), order_.end(),
              [](const auto& a, const auto& b) { return a.dim < b.dim; });
    return {spec_.mesh(), placements_, order_, meta};
  }

 private:
  const DTensorSpec& spec_;
  Placements placements_;
  ShardOrder order_;
};

}  // namespace tegula::inner
