// The idea: the search works on numbers (dist_state.h, edges.h, search.h); specs are made only for
// the way that it finds. What was planned once is looked up by the numbers of the two specs, which
// are never used again for others.
#include "tegula/plan/redistribute_planner.h"

#include <deque>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "tegula/base/hash.h"
#include "tegula/plan/search.h"
#include "tegula/plan/through_replicas.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::int64_t kAnyBytes = std::numeric_limits<std::int64_t>::max();

void check_ends(const DTensorSpec& from, const DTensorSpec& to) {
  if (from.mesh() == to.mesh() && from.shape() == to.shape() &&
      from.meta().dtype() == to.meta().dtype()) {
    return;
  }
  throw UsageError("a plan cannot change the mesh, the shape or the element type of a tensor")
      .fact("from", to_string(from))
      .fact("to", to_string(to))
      .hint("give two specs with one mesh, shape and element type");
}

Plan plan_through(const DTensorSpec& from, const DTensorSpec& to,
                  const std::vector<DTensorSpec>& specs, const CostModel& model) {
  Plan plan{from, to, {}};
  const DTensorSpec* at = &from;
  for (const DTensorSpec& next : specs) {
    plan.steps.push_back(step_between(*at, next, model));
    at = &next;
  }
  return plan;
}

// Without a search.
Plan direct_plan(const DTensorSpec& from, const DTensorSpec& to, std::int64_t memory_cap,
                 const CostModel& model) {
  Plan plan = plan_through(from, to, through_replicas(from, to), model);
  for (const Step& step : plan.steps) {
    if (step.peak_bytes > memory_cap) {
      throw too_little_memory(from, to, memory_cap, plan.peak_bytes());
    }
  }
  return plan;
}

Plan make_plan(const DTensorSpec& from, const DTensorSpec& to, const PlanOptions& options,
               const CostModel& model) {
  check_ends(from, to);
  if (from.placements() == to.placements() && from.shard_order() == to.shard_order()) {
    return {from, to, {}};
  }
  const std::int64_t memory_cap = options.memory_cap.value_or(kAnyBytes);
  const StateSpace space(from, to);
  if (!space.is_searchable()) return direct_plan(from, to, memory_cap, model);
  if (space.from() == space.to()) return plan_through(from, to, {to}, model);
  const auto way = fastest_way(space, model, memory_cap);
  if (!way) throw too_little_memory(from, to, memory_cap, least_peak(space, model));
  std::vector<DTensorSpec> specs;
  for (DistState state : *way) specs.push_back(space.spec_of(state));
  return plan_through(from, to, specs, model);
}

struct Key {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::int64_t memory_cap = kAnyBytes;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return Hasher()
        .add(key.from)
        .add(key.to)
        .add(static_cast<std::uint64_t>(key.memory_cap))
        .result();
  }
};

}  // namespace

UsageError inner::too_little_memory(const DTensorSpec& from, const DTensorSpec& to,
                                    std::int64_t allowed, std::int64_t needed) {
  return UsageError("no way keeps to this peak memory")
      .fact("from", to_string(from))
      .fact("to", to_string(to))
      .fact("allowed", std::to_string(allowed) + " bytes")
      .fact("needed", std::to_string(needed) + " bytes")
      .hint("allow what is needed, or redistribute the tensor in parts");
}

struct RedistributePlanner::Memory {
  std::mutex mutex;
  CostModel model;
  std::uint64_t models = 0;  // how often it changed
  std::unordered_map<Key, std::shared_ptr<const Plan>, KeyHash> plans;
  std::deque<Key> by_age;
};

RedistributePlanner::RedistributePlanner(CostModel model) : memory_(std::make_unique<Memory>()) {
  memory_->model = std::move(model);
}

RedistributePlanner::~RedistributePlanner() = default;

std::shared_ptr<const Plan> RedistributePlanner::plan(const DTensorSpec& from,
                                                      const DTensorSpec& to,
                                                      const PlanOptions& options) {
  const Key key{from.id(), to.id(), options.memory_cap.value_or(kAnyBytes)};
  std::unique_lock lock(memory_->mutex);
  const auto known = memory_->plans.find(key);
  if (known != memory_->plans.end()) return known->second;
  const CostModel model = memory_->model;
  const std::uint64_t models = memory_->models;
  lock.unlock();
  auto plan = std::make_shared<const Plan>(make_plan(from, to, options, model));
  lock.lock();
  if (models != memory_->models) return plan;  // made with a model that is no longer in use
  if (!memory_->plans.emplace(key, plan).second) return plan;
  memory_->by_age.push_back(key);
  if (memory_->by_age.size() > kMostPlans) {
    memory_->plans.erase(memory_->by_age.front());
    memory_->by_age.pop_front();
  }
  return plan;
}

CostModel RedistributePlanner::cost_model() const {
  const std::lock_guard lock(memory_->mutex);
  return memory_->model;
}

void RedistributePlanner::set_cost_model(CostModel model) {
  const std::lock_guard lock(memory_->mutex);
  memory_->model = std::move(model);
  ++memory_->models;
  memory_->plans.clear();
  memory_->by_age.clear();
}

}  // namespace tegula
