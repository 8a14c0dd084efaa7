// A rank's part in an exchange along a cut dim: every rank gets the intervals of the dim that it
// wants, from whoever holds them, in one all_to_all among the ranks along the axes that cut the
// dim. Only what a rank has not got travels; if no rank wants what another has, nothing does.
//
// All ranks of the mesh make and use the same exchanges, in the same order; not for ranks outside
// of it. plan/interval_exchange.h says who sends what to whom.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/plan/interval_exchange.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// The intervals of the whole dim that the rank at a coordinate wants, known to all ranks. May not
// depend on coordinates along axes that do not cut the dim.
using WantedAt = std::function<std::vector<Interval>(const Coordinate& at)>;

// This rank's group along the axes that cut a dim, in the order in which shards are counted. There
// is at least one.
Group group_along(const World& world, const DeviceMesh& mesh, const DimCut& cut);

class DimExchange {
 public:
  DimExchange(const World& world, const DTensorSpec& spec, std::int64_t dim,
              const WantedAt& wanted);

  bool communicates() const { return plan_.communicates; }

  // What this rank wants, one interval after the other along the dim; `outside` where these reach
  // beyond the dim. `tile` is this rank's by the spec, but for its sizes along other dims: those
  // are alike on the ranks of the exchange. May share memory with the tile.
  at::Tensor fetch(const at::Tensor& tile, const at::Scalar& outside) const;

  // The transpose: what every rank gives for the elements that it wants is added up where they are.
  // Gives a tensor of the tile's size along the dim.
  at::Tensor add_up(const at::Tensor& given) const;

 private:
  using Parts = std::vector<std::vector<Interval>>;  // per shard
  at::Tensor sent_around(const at::Tensor& tensor, const Parts& sent, const Parts& received) const;

  std::int64_t dim_;
  std::size_t shard_;  // this rank's
  std::int64_t tile_size_;
  IntervalExchange plan_;
  std::optional<Group> group_;  // none if nothing travels
};

}  // namespace tegula::inner
