// Who holds what: the slice of a distributed tensor that each rank has.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/base/coordinate.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// For each dim of the tensor, the intervals that a rank holds, in storage order; the rank's local
// tensor is their cross product. Law: for each coordinate along the axes that do not cut, the
// slices along the axes that do cut partition the tensor.
using TensorSlice = std::vector<std::vector<Interval>>;

// UsageError if the mesh has no such coordinate.
TensorSlice slice_at(const DTensorSpec& spec, const Coordinate& coordinate);

// The shape of the rank's local tensor; O(dims + axes).
Shape local_shape(const DTensorSpec& spec, const Coordinate& coordinate);
// Its strides: dense, the dims in memory in the order that the whole tensor has them in.
Shape local_stride(const DTensorSpec& spec, const Coordinate& coordinate);

// The whole tensor's shape if every rank's local tensor had this shape: each cut dim times the
// ranks that cut it, however they cut. UsageError: a shard dim out of range, not one placement per
// axis, a negative size, overflow.
Shape whole_shape(const Shape& local, const DeviceMesh& mesh, const Placements& placements);

// A box of a tensor (one interval per dim), or a part of one.
using Box = std::vector<Interval>;

// A part of a box that a rank holds: where it is in the whole tensor, and at which place of the
// local tensor it begins.
struct OwnedBox {
  std::int64_t rank = 0;
  Box whole;
  std::vector<std::int64_t> local_begin;
  bool operator==(const OwnedBox&) const = default;
};

// All ranks of a fiber that hold something of the box, replicas included, by rank's place in the
// mesh. An owed reduction does not matter: every rank along its axis holds a part of the value.
// UsageError unless the box has one interval per dim and the mesh that fiber. O(result).
std::vector<OwnedBox> owners(const DTensorSpec& spec, const Box& box, std::int64_t fiber = 0);

}  // namespace tegula
