#include "tegula/redistribute/routes.h"

#include "tegula/base/hash.h"
#include "tegula/comm/recovery.h"
#include "tegula/plan/redistribute_planner.h"

namespace tegula::inner {
namespace {

const bool kForgetsInRecovery = [] {
  comm::on_recovery([](const World& world) { world.part<Routes>().forget(); });
  return true;
}();

}  // namespace

std::size_t Routes::KeyHash::operator()(const Key& key) const {
  const std::uint64_t wire = key.wire ? 1 + static_cast<std::uint64_t>(*key.wire) : 0;
  return Hasher().add(reinterpret_cast<std::uintptr_t>(key.plan)).add(wire).result();
}

Route Routes::find_or_make(const World& world, const DTensorSpec& from, const DTensorSpec& to,
                           const RouteOptions& options) {
  const std::shared_ptr<const Plan> plan =
      world.part<RedistributePlanner>().plan(from, to, {options.memory_cap});
  const Key key{plan.get(), options.wire};
  std::unique_lock<std::mutex> lock(mutex_);
  if (const auto known = routes_.find(key); known != routes_.end()) return known->second;
  lock.unlock();  // making groups may wait for other ranks
  const Route route(world, plan, options.wire);
  lock.lock();
  if (!routes_.emplace(key, route).second) return route;
  by_age_.push_back(key);
  if (by_age_.size() > kMost) {
    routes_.erase(by_age_.front());
    by_age_.pop_front();
  }
  return route;
}

void Routes::forget() {
  std::unordered_map<Key, Route, KeyHash> forgotten;  // goes after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  forgotten.swap(routes_);
  by_age_.clear();
}

}  // namespace tegula::inner
