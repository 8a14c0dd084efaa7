// What it takes to bring one operand along one axis from a placement to another, roughly: the
// estimate by which an axis chooses its move. The plan that is carried out comes from the planner.
#pragma once

#include <cstdint>
#include <optional>

#include "tegula/placement/placement.h"
#include "tegula/plan/cost_model.h"

namespace tegula {

// Picoseconds of communication, and of copying on the rank.
struct MoveCost {
  std::int64_t sent = 0;
  std::int64_t copied = 0;

  MoveCost& operator+=(const MoveCost& other) {
    sent += other.sent;
    copied += other.copied;
    return *this;
  }
};

struct AxisLink {
  std::int64_t ranks = 1;
  LinkCost link;
  double copy_gb_per_s = 8;
};

// A tile of `bytes`. None where such a change is never made unasked: a debt is not made from data
// that is whole (unless that is allowed) or cut, nor one kind of debt from another.
enum class Owing { No, Allowed };
std::optional<MoveCost> move_cost(const Placement& from, const Placement& to, std::int64_t bytes,
                                  const AxisLink& axis, Owing owing);

// The time to pay what a result owes.
std::int64_t debt_cost(const Placement& result, std::int64_t bytes, const AxisLink& axis);

}  // namespace tegula
