// RedistributePlanner: the cheapest way from one distribution of a tensor to another.
//
//   RedistributePlanner planner;
//   std::shared_ptr<const Plan> plan = planner.plan(from, to);
//   std::cout << explain(*plan);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "tegula/base/error.h"
#include "tegula/plan/cost_model.h"
#include "tegula/plan/plan.h"

namespace tegula {

struct PlanOptions {
  // No step may have more bytes per rank in its two tiles together.
  std::optional<std::int64_t> memory_cap;
  bool operator==(const PlanOptions&) const = default;
};

namespace inner {

// Says that no way between two specs keeps to a memory cap, and what one needs.
UsageError too_little_memory(const DTensorSpec& from, const DTensorSpec& to, std::int64_t allowed,
                             std::int64_t needed);

}  // namespace inner

// Plans are remembered, the last kMostPlans of them. Any thread may use a planner; ranks that act
// on its plans together need planners with equal cost models.
class RedistributePlanner {
 public:
  static constexpr std::size_t kMostPlans = 4096;

  explicit RedistributePlanner(CostModel model = {});
  ~RedistributePlanner();

  // Of all ways through the states of dist_state.h by the edges of edges.h, one of least predicted
  // time. Where more than StateSpace::kMostSlots axes have to move, no search is made: what is in
  // the way is replicated.
  //
  // The time it takes does not depend on the number of ranks. Every step is one that step_at knows;
  // specs in between carry the strides of `to`.
  //
  // UsageError: specs that differ in mesh, shape or element type; `memory_cap` that no way keeps
  // to, naming the least that one does.
  // Law: the same as that of a planner asked for the first time.
  std::shared_ptr<const Plan> plan(const DTensorSpec& from, const DTensorSpec& to,
                                   const PlanOptions& options = {});

  CostModel cost_model() const;
  // From now on; forgets all plans.
  void set_cost_model(CostModel model);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace tegula
