// The idea: every rank works out what every receiver is delivered; what it finds itself to be the
// sender of, it packs into one flat buffer, receiver after receiver, and what it is sent arrives in
// the order of the senders. Cost: what a rank lacks is sent to it once; O(boxes of all receivers)
// arithmetic on each rank.
#include "tegula/redistribute/transfer.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/plan/common_mesh.h"
#include "tegula/plan/deliveries.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/plan/step_cost.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

using Ranks = std::vector<int>;  // ascending

// Walks from fiber to fiber: the fibers that a rank is in, in either mesh, and those of their
// ranks. A receiver outside of `from` is served by fiber 0 of it.
class Meeting {
 public:
  Meeting(const DeviceMesh& from, const DeviceMesh& to) : from_(from), to_(to) {}

  // The ranks that take part if this one does; none if it is in neither mesh.
  Ranks of(std::int64_t rank) {
    if (from_.coordinate_of(rank) || to_.coordinate_of(rank)) met_.insert(rank);
    new_.assign(met_.begin(), met_.end());
    while (!new_.empty()) {
      const std::int64_t one = new_.back();
      new_.pop_back();
      visit(from_, from_.fiber_of(one).value_or(0), from_seen_);
      if (const auto fiber = to_.fiber_of(one)) visit(to_, *fiber, to_seen_);
      if (from_.fiber_of(one) == 0) visit_outsiders();
    }
    return {met_.begin(), met_.end()};
  }

 private:
  void meet(std::int64_t rank) {
    if (met_.insert(rank).second) new_.push_back(rank);
  }
  void visit(const DeviceMesh& mesh, std::int64_t fiber, std::set<std::int64_t>& seen) {
    if (!seen.insert(fiber).second) return;
    for (std::int64_t rank : mesh.ranks(fiber)) meet(rank);
  }
  void visit_outsiders() {
    if (std::exchange(outsiders_seen_, true)) return;
    for (std::int64_t rank : to_.root().ranks()) {
      if (!from_.coordinate_of(rank)) meet(rank);
    }
  }

  const DeviceMesh& from_;
  const DeviceMesh& to_;
  std::set<std::int64_t> met_;
  std::vector<std::int64_t> new_;
  std::set<std::int64_t> from_seen_;
  std::set<std::int64_t> to_seen_;
  bool outsiders_seen_ = false;
};

bool contains(const Ranks& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

void check_same_tensor(const DTensorSpec& from, const DTensorSpec& to) {
  if (from.shape() == to.shape() && from.meta().dtype() == to.meta().dtype()) return;
  throw UsageError("a transfer cannot change the shape or element type of a tensor")
      .fact("from", to_string(from))
      .fact("to", to_string(to))
      .hint("give two specs with one shape and element type");
}

std::int64_t numel(const Box& box) {
  std::int64_t product = 1;
  for (const Interval& interval : box) product *= interval.size;
  return product;
}

std::vector<std::int64_t> shape_of(const Box& box) {
  std::vector<std::int64_t> shape;
  for (const Interval& interval : box) shape.push_back(interval.size);
  return shape;
}

// Who sends what to whom, for all ranks that take part.
class Exchange {
 public:
  Exchange(const World& world, Ranks ranks, const DTensorSpec& from, const DTensorSpec& to)
      : world_(world), to_(to), ranks_(std::move(ranks)) {
    for (int rank : ranks_) {
      const bool receives = to.mesh().coordinate_of(rank).has_value();
      received_by_.push_back(receives ? deliveries(from, to, rank) : std::vector<Delivery>{});
    }
  }

  bool crosses_ranks() const {
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      for (const Delivery& delivery : received_by_[index]) {
        if (delivery.sender != ranks_[index]) return true;
      }
    }
    return false;
  }

  // The new tile.
  at::Tensor run(const at::Tensor& tile) const {
    const at::Tensor received = crosses_ranks() ? sent_around(tile) : at::Tensor();
    const std::optional<Coordinate> coordinate = to_.mesh().coordinate_of(world_.rank());
    if (!coordinate) return no_tile(to_);
    at::Tensor result = new_tile(to_, *coordinate);
    std::vector<std::int64_t> begin = begins(received_sizes());
    for (const Delivery& delivery : mine()) {
      const at::Tensor place = view_of(result, delivery.to);
      if (delivery.sender == world_.rank()) {
        place.copy_(view_of(tile, delivery.from));
        continue;
      }
      std::int64_t& next = begin[index_of(delivery.sender)];
      const std::int64_t size = numel(delivery.to);
      place.copy_(received.narrow(0, next, size).view(shape_of(delivery.to)));
      next += size;
    }
    return result;
  }

 private:
  std::size_t index_of(std::int64_t rank) const {
    return static_cast<std::size_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) -
                                    ranks_.begin());
  }
  const std::vector<Delivery>& mine() const { return received_by_[index_of(world_.rank())]; }

  static std::vector<std::int64_t> begins(const std::vector<std::int64_t>& sizes) {
    std::vector<std::int64_t> result;
    std::int64_t sum = 0;
    for (std::int64_t size : sizes) {
      result.push_back(sum);
      sum += size;
    }
    return result;
  }

  // From each rank; nothing from myself.
  std::vector<std::int64_t> received_sizes() const {
    std::vector<std::int64_t> sizes(ranks_.size(), 0);
    for (const Delivery& delivery : mine()) {
      if (delivery.sender != world_.rank()) {
        sizes[index_of(delivery.sender)] += numel(delivery.to);
      }
    }
    return sizes;
  }

  at::Tensor sent_around(const at::Tensor& tile) const {
    std::vector<std::int64_t> sizes(ranks_.size(), 0);
    std::vector<at::Tensor> boxes;
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      if (ranks_[index] == world_.rank()) continue;
      for (const Delivery& delivery : received_by_[index]) {
        if (delivery.sender != world_.rank()) continue;
        boxes.push_back(view_of(tile, delivery.from));
        sizes[index] += boxes.back().numel();
      }
    }
    std::int64_t total = 0;
    for (std::int64_t size : sizes) total += size;
    const at::Tensor packed = at::empty({total}, tile.options());
    std::int64_t begin = 0;
    for (const at::Tensor& box : boxes) {
      packed.narrow(0, begin, box.numel()).view(box.sizes()).copy_(box);
      begin += box.numel();
    }
    const Group group = world_.group(ranks_, {"transfer", "", std::nullopt});
    return group.all_to_all(packed, 0, 0, sizes, received_sizes());
  }

  const World& world_;
  const DTensorSpec& to_;
  Ranks ranks_;
  std::vector<std::vector<Delivery>> received_by_;  // by index in ranks_
};

void check_memory(const DTensorSpec& from, const DTensorSpec& to,
                  const std::optional<std::int64_t>& cap) {
  const std::int64_t needed = peak_of(tile_bytes(from), tile_bytes(to));
  if (!cap || needed <= *cap) return;
  throw too_little_memory(from, to, *cap, needed);
}

at::Tensor moved_among(const World& world, const Ranks& ranks, const at::Tensor& tile,
                       const DTensorSpec& from, const DTensorSpec& to,
                       const RouteOptions& options) {
  if (!contains(ranks, world.rank())) return no_tile(to);
  const std::optional<Coordinate> at_source = from.mesh().coordinate_of(world.rank());
  if (at_source) check_tile(tile, from, *at_source);
  const at::AutoDispatchBelowADInplaceOrView plain;
  const DTensorSpec source = with_reductions_done(from);
  const DTensorSpec target = with_reductions_done(to);
  check_memory(source, target, options.memory_cap);
  at::Tensor value =
      redistribute_tile(world, at_source ? tile : no_tile(from), from, source, options);
  const Exchange exchange(world, ranks, source, target);
  if (options.wire && exchange.crosses_ranks()) value = value.to(*options.wire);
  return redistribute_tile(world, exchange.run(value), target, to,
                           {std::nullopt, options.memory_cap});
}

}  // namespace

at::Tensor transfer(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                    const DTensorSpec& to, const RouteOptions& options) {
  check_same_tensor(from, to);
  const bool is_one_mesh = from.mesh() == to.mesh();
  const std::optional<SpecPair> planned =
      is_one_mesh ? SpecPair{from, to} : on_common_mesh(from, to);
  if (!planned) {
    return moved_among(world, Meeting(from.mesh(), to.mesh()).of(world.rank()), tile, from, to,
                       options);
  }
  const std::optional<Coordinate> at = to.mesh().coordinate_of(world.rank());
  if (!at) return no_tile(to);
  at::Tensor moved = redistribute_tile(world, tile, planned->from, planned->to, options);
  return is_one_mesh || !moved.is_alias_of(tile) ? moved : new_tile(to, *at).copy_(moved);
}

at::Tensor scatter_from(const World& world, const at::Tensor& whole, std::int64_t source,
                        const DTensorSpec& to) {
  const DeviceMesh at_source({{"source", 1}}, {source});
  const std::optional<std::int64_t> fiber = to.mesh().fiber_of(source);
  std::vector<std::int64_t> ranks = fiber ? to.mesh().ranks(*fiber) : to.mesh().root().ranks();
  if (!fiber) ranks.push_back(source);
  std::sort(ranks.begin(), ranks.end());
  return moved_among(world, {ranks.begin(), ranks.end()}, whole,
                     DTensorSpec(at_source, {Replicate()}, to.meta()), to, {});
}

}  // namespace tegula::inner
