// The idea: every rank works out what every receiver is delivered; what it finds itself to be the
// sender of, it packs into one flat buffer, receiver after receiver, and what it is sent arrives in
// the order of the senders. Cost: what a rank lacks is sent to it once; O(boxes of all receivers)
// arithmetic on each rank.
#include "tegula/dispatch/transfer.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <set>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/dispatch/redistribute_tile.h"
#include "tegula/dispatch/tile_layout.h"
#include "tegula/plan/deliveries.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {
namespace {

// The ranks of both meshes, all fibers, ascending.
std::vector<int> ranks_of(const DeviceMesh& a, const DeviceMesh& b) {
  std::set<int> ranks;
  for (std::int64_t rank : a.root().ranks()) ranks.insert(static_cast<int>(rank));
  for (std::int64_t rank : b.root().ranks()) ranks.insert(static_cast<int>(rank));
  return {ranks.begin(), ranks.end()};
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

void check_same_tensor(const DTensorSpec& from, const DTensorSpec& to) {
  if (from.shape() == to.shape() && from.meta().dtype() == to.meta().dtype()) return;
  throw UsageError("a tensor arrives as what it is")
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
  Exchange(const World& world, const DTensorSpec& from, const DTensorSpec& to)
      : world_(world), to_(to), ranks_(ranks_of(from.mesh(), to.mesh())) {
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
    if (!coordinate) return no_tile(to_, tile.device());
    at::Tensor result = new_tile(to_, *coordinate, tile.device());
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
  std::vector<int> ranks_;
  std::vector<std::vector<Delivery>> received_by_;  // by index in ranks_
};

}  // namespace

at::Tensor transfer(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                    const DTensorSpec& to, std::optional<at::ScalarType> wire) {
  check_same_tensor(from, to);
  const at::Device device = tile.defined() ? tile.device() : at::Device(at::kCPU);
  const std::optional<Coordinate> at_source = from.mesh().coordinate_of(world.rank());
  if (from.mesh() == to.mesh()) {
    return at_source ? redistribute_tile(world, tile, from, to, wire) : no_tile(to, device);
  }
  if (!contains(ranks_of(from.mesh(), to.mesh()), world.rank())) return no_tile(to, device);
  if (at_source) check_tile(tile, from, *at_source);
  const at::AutoDispatchBelowADInplaceOrView plain;
  const DTensorSpec source = with_reductions_done(from);
  const DTensorSpec target = with_reductions_done(to);
  at::Tensor value =
      redistribute_tile(world, at_source ? tile : no_tile(from, device), from, source, wire);
  const Exchange exchange(world, source, target);
  if (wire && exchange.crosses_ranks()) value = value.to(*wire);
  return redistribute_tile(world, exchange.run(value), target, to);
}

at::Tensor scatter_from(const World& world, const at::Tensor& whole, std::int64_t source,
                        const DTensorSpec& to) {
  const DeviceMesh at_source({{"source", 1}}, {source});
  return transfer(world, whole, DTensorSpec(at_source, {Replicate()}, to.meta()), to);
}

}  // namespace tegula
