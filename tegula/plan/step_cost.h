// What a step costs, given the tiles before and after it and the group that takes it: the one
// arithmetic of costs, in whole picoseconds, by which plans are compared and axes choose what they
// do in a call. Numbers that grow too large stop at the greatest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tegula/base/saturating.h"
#include "tegula/mesh/device_mesh.h"
#include "tegula/plan/cost_model.h"
#include "tegula/plan/transition.h"

namespace tegula::inner {

// Of the group over some axes of a mesh.
struct Rates {
  std::int64_t ranks = 1;
  std::int64_t latency = 0;   // picoseconds
  std::int64_t per_byte = 0;  // sent; picoseconds / 1024
  std::int64_t per_copied_byte = 0;
};

Rates rates_of(const CostModel& model, const DeviceMesh& mesh,
               const std::vector<std::size_t>& axes);

struct StepCost {
  std::int64_t bytes_sent = 0;
  std::int64_t picoseconds = 0;  // at least 1
};

// Of some collectives that send and write so many bytes together, in picoseconds.
std::int64_t time_of(const Rates& rates, std::int64_t calls, std::int64_t bytes_sent,
                     std::int64_t bytes_written);

// The tile that a step makes of a tile, where all shards are alike.
std::int64_t bytes_after(StepKind kind, const Rates& rates, std::int64_t bytes_before);

StepCost cost_of(StepKind kind, const Rates& rates, std::int64_t bytes_before,
                 std::int64_t bytes_after);

// Both tiles at once.
inline std::int64_t peak_of(std::int64_t bytes_before, std::int64_t bytes_after) {
  return saturating_sum(bytes_before, bytes_after);
}

}  // namespace tegula::inner
