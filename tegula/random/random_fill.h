// Fills tensors with random numbers by global element index: the element with row-major index i of
// the whole tensor gets f(distribution, element type, draw, i), whatever the mesh, the placements
// and the strides.
//
// Each function writes memory only: no autograd, no version counter, no communication. A tile that
// is empty or undefined stays as it is, whatever the coordinate, so a rank outside of the mesh may
// call them too; a distribution that makes no sense is a UsageError there as well. Tiles of other
// devices are filled on the CPU and copied; tiles on "meta" stay as they are.
//
// Cost: one Philox block per element. Threads of libtorch share the work.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/random/distributions.h"
#include "tegula/random/random.h"
#include "tegula/spec/slices.h"

namespace tegula::inner {

// The tile at a coordinate, worked out once for many fills.
class FillPlan {
 public:
  FillPlan(const DTensorSpec& spec, const Coordinate& coordinate);
  // The tile has the spec's shape and element type there. UsageError: parameters that make no sense
  // or do not fit the element type.
  void fill(const at::Tensor& tile, const Distribution& distribution, const Draw& draw) const;

 private:
  Shape whole_;
  TensorSlice slice_;
};

// This rank's tile. Owed reductions do not matter: such axes do not cut. UsageError: parameters
// that make no sense or do not fit the element type, a tile without the spec's shape or element
// type, elements that share memory.
void fill_random(const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& coordinate,
                 const Distribution& distribution, const Draw& draw);
// A plain tensor, which is its own whole.
void fill_random(const at::Tensor& whole, const Distribution& distribution, const Draw& draw);

// As Bernoulli, with a probability for each element: the probabilities have the tile's shape or
// broadcast to it. UsageError also: one outside of [0, 1].
void fill_bernoulli(const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& coordinate,
                    const at::Tensor& probabilities, const Draw& draw);
void fill_bernoulli(const at::Tensor& whole, const at::Tensor& probabilities, const Draw& draw);

}  // namespace tegula::inner
