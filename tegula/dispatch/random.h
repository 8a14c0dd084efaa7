// Random numbers by global element index. A draw is a pair (seed, draw number); element i of the
// tensor that it fills depends on these and on i alone. So a tensor gets the same bits on meshes of
// 1, 2, 7 ranks and for any placement (not the bits of plain torch's generator).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <variant>

#include "tegula/comm/world.h"

namespace tegula {

struct RNGState {
  std::uint64_t seed = 0;
  std::uint64_t next_draw = 0;
  bool operator==(const RNGState&) const = default;
};

// Of this rank's world. All ranks set the same, or replicas will differ.
void manual_seed(const World& world, std::uint64_t seed);
RNGState rng_state(const World& world);
void set_rng_state(const World& world, const RNGState& state);

}  // namespace tegula
