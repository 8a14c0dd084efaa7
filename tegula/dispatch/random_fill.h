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

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "tegula/dispatch/random.h"
#include "tegula/spec/slices.h"

namespace tegula {

// The first five are for f16, bf16, f32 and f64, the others for whole numbers and bool too. What
// the element type cannot hold is rounded. Parameters are those that libtorch allows.

// In [from, to) of the element type: rounding reaches neither below `from` nor up to `to`. 24
// random bits (f64: 53). `from` itself if they are equal.
struct Uniform {
  double from = 0;
  double to = 1;
};
struct Normal {
  double mean = 0;
  double std = 1;
};
struct LogNormal {
  double mean = 1;
  double std = 2;
};
// Neither 0 nor infinite.
struct Exponential {
  double lambda = 1;
};
struct Cauchy {
  double median = 0;
  double sigma = 1;
};
// Tosses up to the first success: 1, 2, 3, ...; the greatest value of the type stands for more.
struct Geometric {
  double p = 0.5;
};
// 1 with probability p, else 0.
struct Bernoulli {
  double p = 0.5;
};
// Whole numbers in [low, high). Without `high`, up to the greatest value of a whole-number type,
// or up to 2^(digits of the mantissa) of a float: Integers{} is what random_() draws. No value is
// preferred by more than a part in 2^64, but for rounding in floats.
struct Integers {
  std::int64_t low = 0;
  std::optional<std::int64_t> high = {};
};

using Distribution =
    std::variant<Uniform, Normal, LogNormal, Exponential, Cauchy, Geometric, Bernoulli, Integers>;

// "Uniform(0, 1)"
std::string to_string(const Distribution& distribution);

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

}  // namespace tegula
