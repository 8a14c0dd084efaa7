// The idea: walk the boxes of the receiver's slice; each is covered by boxes that ranks of `from`
// hold, and owners() lists these with all replicas. Boxes that begin at the same element are
// replicas of each other.
#include "tegula/plan/deliveries.h"

#include <map>
#include <optional>
#include <string>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

struct TileBox {
  Box whole;
  std::vector<std::int64_t> local_begin;
};

// The boxes of a slice, the last dim fastest.
std::vector<TileBox> boxes_of(const TensorSlice& slice) {
  std::vector<TileBox> boxes{{}};
  for (const std::vector<Interval>& intervals : slice) {
    std::vector<TileBox> longer;
    for (const TileBox& box : boxes) {
      std::int64_t begin = 0;
      for (const Interval& interval : intervals) {
        longer.push_back(box);
        longer.back().whole.push_back(interval);
        longer.back().local_begin.push_back(begin);
        begin += interval.size;
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

// By the element at which they begin.
using Replicas = std::map<std::vector<std::int64_t>, std::vector<OwnedBox>>;

Replicas replicas_of(const DTensorSpec& from, const Box& box, std::int64_t fiber) {
  Replicas replicas;
  for (OwnedBox& owned : owners(from, box, fiber)) {
    std::vector<std::int64_t> begin;
    for (const Interval& interval : owned.whole) begin.push_back(interval.begin);
    replicas[begin].push_back(std::move(owned));
  }
  return replicas;
}

const OwnedBox& chosen(const std::vector<OwnedBox>& replicas, std::int64_t receiver,
                       std::size_t turn) {
  for (const OwnedBox& replica : replicas) {
    if (replica.rank == receiver) return replica;
  }
  return replicas[turn % replicas.size()];
}

Delivery delivery_of(const OwnedBox& owned, const TileBox& box) {
  Delivery delivery{owned.rank, {}, {}};
  for (std::size_t dim = 0; dim < owned.whole.size(); ++dim) {
    const Interval& part = owned.whole[dim];
    delivery.from.push_back({owned.local_begin[dim], part.size});
    delivery.to.push_back({box.local_begin[dim] + part.begin - box.whole[dim].begin, part.size});
  }
  return delivery;
}

// Counts the places of a mesh, the last axis fastest.
std::size_t number_of(const Coordinate& coordinate, const DeviceMesh& mesh) {
  std::int64_t number = 0;
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    number = number * mesh.axes()[axis].size + coordinate[axis];
  }
  return static_cast<std::size_t>(number);
}

}  // namespace

std::vector<Delivery> deliveries(const DTensorSpec& from, const DTensorSpec& to,
                                 std::int64_t receiver) {
  const std::optional<Coordinate> coordinate = to.mesh().coordinate_of(receiver);
  if (!coordinate || from.shape() != to.shape()) {
    throw UsageError("rank " + std::to_string(receiver) + " cannot be sent a tile of this tensor")
        .fact("from", to_string(from))
        .fact("to", to_string(to))
        .hint("the receiver is a rank of the mesh, and both specs are of one tensor");
  }
  const std::int64_t fiber = from.mesh().fiber_of(receiver).value_or(0);
  std::size_t turn = number_of(*coordinate, to.mesh());
  std::vector<Delivery> result;
  for (const TileBox& box : boxes_of(slice_at(to, *coordinate))) {
    for (const auto& [begin, replicas] : replicas_of(from, box.whole, fiber)) {
      result.push_back(delivery_of(chosen(replicas, receiver, turn++), box));
    }
  }
  return result;
}

}  // namespace tegula::inner
