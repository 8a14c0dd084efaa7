// A slice is what the dims' cuts say, dim by dim. Owners are found the other way round: the shares
// of each dim fix some coordinates, and what is still free at the end counts through the replicas.
#include "tegula/spec/slices.h"

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula {
namespace {

void check_coordinate(const DTensorSpec& spec, const Coordinate& coordinate) {
  spec.mesh().rank_at(coordinate);  // throws unless it is a place of the mesh
}

void check_box(const DTensorSpec& spec, const Box& box) {
  if (static_cast<std::int64_t>(box.size()) == spec.ndim()) return;
  throw UsageError("a box with " +
                   counted(static_cast<std::int64_t>(box.size()), "interval", "intervals") +
                   " is no part of a tensor with " + counted(spec.ndim(), "dim", "dims"))
      .fact("spec", to_string(spec))
      .hint("give one interval per dim");
}

// Shares of all dims chosen so far, and the coordinate that they fix (-1: still free).
struct PartialBox {
  Coordinate coordinate;
  Box whole;
  std::vector<std::int64_t> local_begin;
};

std::vector<PartialBox> add_dim(const std::vector<PartialBox>& boxes, const DimCut& cut,
                                const std::vector<Share>& shares) {
  std::vector<PartialBox> result;
  for (const PartialBox& box : boxes) {
    for (const Share& share : shares) {
      PartialBox next = box;
      const std::vector<std::int64_t> position = cut.position_of(share.shard);
      for (std::size_t i = 0; i < position.size(); ++i)
        next.coordinate[cut.axes()[i].axis] = position[i];
      next.whole.push_back(share.whole);
      next.local_begin.push_back(share.local_begin);
      result.push_back(std::move(next));
    }
  }
  return result;
}

// Every coordinate along an axis that cuts nothing holds the same.
std::vector<PartialBox> add_replicas(const std::vector<PartialBox>& boxes, std::size_t axis,
                                     std::int64_t ranks) {
  std::vector<PartialBox> result;
  for (const PartialBox& box : boxes) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      result.push_back(box);
      result.back().coordinate[axis] = rank;
    }
  }
  return result;
}

}  // namespace

TensorSlice slice_at(const DTensorSpec& spec, const Coordinate& coordinate) {
  check_coordinate(spec, coordinate);
  TensorSlice slice;
  for (const DimCut& cut : spec.dim_cuts()) slice.push_back(cut.intervals(coordinate));
  return slice;
}

Shape local_shape(const DTensorSpec& spec, const Coordinate& coordinate) {
  check_coordinate(spec, coordinate);
  Shape shape;
  shape.reserve(spec.dim_cuts().size());
  for (const DimCut& cut : spec.dim_cuts()) shape.push_back(cut.local_size(coordinate));
  return shape;
}

Shape local_stride(const DTensorSpec& spec, const Coordinate& coordinate) {
  return dense_strides_like(local_shape(spec, coordinate), spec.meta().stride());
}

Shape whole_shape(const Shape& local, const DeviceMesh& mesh, const Placements& placements) {
  const auto refuse = [&](const std::string& why) {
    return UsageError("cannot tell the whole shape: " + why)
        .fact("local", bracketed(local))
        .fact("mesh", to_string(mesh))
        .fact("as", to_string(placements))
        .hint("give one placement per axis, with shard dims that the tensor has");
  };
  if (placements.size() != mesh.ndim()) throw refuse("there is not one placement per axis");
  if (std::any_of(local.begin(), local.end(), [](std::int64_t size) { return size < 0; })) {
    throw refuse("a size is negative");
  }
  Shape whole = local;
  const auto ndim = static_cast<std::int64_t>(local.size());
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    const Shard* shard = as_shard(placements[axis]);
    if (shard == nullptr) continue;
    if (shard->dim() < -ndim || shard->dim() >= ndim) throw refuse("a shard dim is out of range");
    std::int64_t& size =
        whole[static_cast<std::size_t>(shard->dim() < 0 ? shard->dim() + ndim : shard->dim())];
    if (__builtin_mul_overflow(size, mesh.axes()[axis].size, &size))
      throw refuse("it is too large");
  }
  return whole;
}

std::vector<OwnedBox> owners(const DTensorSpec& spec, const Box& box, std::int64_t fiber) {
  check_box(spec, box);
  spec.mesh().rank_at(Coordinate(spec.mesh().ndim(), 0),
                      fiber);  // throws if there is no such fiber
  std::vector<PartialBox> boxes{{Coordinate(spec.mesh().ndim(), -1), {}, {}}};
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    const DimCut& cut = spec.dim_cuts()[dim];
    boxes = add_dim(boxes, cut, cut.owners(box[dim]));
  }
  for (std::size_t axis = 0; axis < spec.mesh().ndim(); ++axis) {
    if (as_shard(spec.placements()[axis]) == nullptr) {
      boxes = add_replicas(boxes, axis, spec.mesh().axes()[axis].size);
    }
  }
  std::stable_sort(boxes.begin(), boxes.end(), [](const PartialBox& a, const PartialBox& b) {
    return a.coordinate < b.coordinate;
  });
  std::vector<OwnedBox> result;
  for (PartialBox& owned : boxes) {
    result.push_back({spec.mesh().rank_at(owned.coordinate, fiber), std::move(owned.whole),
                      std::move(owned.local_begin)});
  }
  return result;
}

}  // namespace tegula
