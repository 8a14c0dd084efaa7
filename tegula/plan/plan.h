// Plan: the steps that bring a tensor from one distribution to another, with what each is expected
// to cost. Values: compared, printed, explained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "tegula/plan/cost_model.h"
#include "tegula/plan/transition.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// Bytes are per rank, of the largest tiles.
struct Step {
  StepKind kind = StepKind::Rename;
  std::vector<std::size_t> axes;  // that take part, in the order in which their group counts ranks
  DTensorSpec before;
  DTensorSpec after;
  std::int64_t bytes_sent = 0;
  std::int64_t peak_bytes = 0;  // the tile before and the tile after
  std::int64_t picoseconds = 0;
  bool operator==(const Step&) const = default;
};

// What one step between two specs is and costs. UsageError as step_at (tile_step.h).
Step step_between(const DTensorSpec& before, const DTensorSpec& after, const CostModel& model);

// The first step begins at `from`, the last ends at `to`, each begins where the one before it ends.
// No steps if at most the strides differ.
struct Plan {
  DTensorSpec from;
  DTensorSpec to;
  std::vector<Step> steps;

  std::int64_t bytes_sent() const;
  std::int64_t peak_bytes() const;  // the greatest of a step; the tile itself if there are none
  std::int64_t picoseconds() const;
  bool operator==(const Plan&) const = default;
};

// "all-gather over tp: [R, S(0)] -> [R, R]"; the steps of a plan one per line.
std::string to_string(const Step& step);
std::string to_string(const Plan& plan);
std::ostream& operator<<(std::ostream& out, const Plan& plan);

// A table of the steps: what each does, over which axes, what it leads to, bytes sent per rank,
// peak memory, predicted time; and a line of totals.
std::string explain(const Plan& plan);

// The bytes of the largest tile: the longest shard along every dim.
std::int64_t tile_bytes(const DTensorSpec& spec);

}  // namespace tegula
