// Random numbers by global element index. A draw is a pair (seed, draw number); element i of the
// tensor that it fills depends on these and on i alone. So a tensor gets the same bits on meshes of
// 1, 2, 7 ranks and for any placement (not the bits of plain torch's generator).
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

#include "tegula/comm/world.h"

namespace tegula {

// A world begins with this one on every rank, so that ranks agree even if nobody sets a seed.
struct RNGState {
  std::uint64_t seed = 0x7465'6775'6c61;
  std::uint64_t next_draw = 0;
  bool operator==(const RNGState&) const = default;
};

// Of this rank's world; any thread of the rank may call them. All ranks set the same, or replicas
// will differ. A seed begins with draw 0.
void manual_seed(const World& world, std::uint64_t seed);
RNGState rng_state(const World& world);
void set_rng_state(const World& world, const RNGState& state);

namespace inner {

// What one random op needs to fill its result (random_fill.h).
struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;
  bool operator==(const Draw&) const = default;
};

// Consumes one draw of the world's state. All ranks call it for every random op, those without
// elements too, so that they stay in step.
Draw next_draw(const World& world);

// A draw from a generator that the user passed: takes 64 bits of it, under its mutex. Ranks whose
// generators are in the same state get the same. UsageError unless it is a CPU generator.
Draw draw_from(at::Generator generator);

// A fresh CPU generator for ops that every rank computes in full (randperm, multinomial): equal
// draws give generators in the same state; other draws, and the elements that fill_random makes,
// are independent of it.
at::Generator replicated_generator(const Draw& draw);

}  // namespace inner

}  // namespace tegula
