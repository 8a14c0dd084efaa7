// Where a tensor may be, by chance.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/mesh/device_mesh.h"
#include "tegula/placement/placement.h"
#include "tegula/spec/shard_order.h"
#include "tegula/spec/tensor_meta.h"
#include "tests/placement/random.h"

namespace tegula::test {

// Placements that fit the shape: replicated, cut evenly or raggedly, one dim by several axes in any
// order, and reductions that are owed: sums mostly, averages, products, maxima, minima.
struct RandomPlace {
  Placements placements;
  ShardOrder order;
};
enum class Owed { Allowed, Never };
RandomPlace random_place(Random& random, const DeviceMesh& mesh, at::IntArrayRef shape, Owed owed);

}  // namespace tegula::test
