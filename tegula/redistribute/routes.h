// The routes of one rank: world.part<Routes>().
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "tegula/redistribute/route.h"

namespace tegula::inner {

// Any thread. The last kMost routes are remembered.
class Routes {
 public:
  static constexpr std::size_t kMost = 1024;

  // The route from one spec to another, made if it is new; UsageError as Route. When the world's
  // planner gets another cost model, routes follow its new plans.
  Route find_or_make(const World& world, const DTensorSpec& from, const DTensorSpec& to,
                     const RouteOptions& options);
  // All of them. A world that recovers does so: some ranks may have made groups that others have
  // not.
  void forget();

 private:
  // The planner has one plan for two specs and a memory cap. A remembered route holds its plan, so
  // that no other plan can come to stand at the same place.
  struct Key {
    const Plan* plan = nullptr;
    std::optional<at::ScalarType> wire;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  std::mutex mutex_;
  std::unordered_map<Key, Route, KeyHash> routes_;
  std::deque<Key> by_age_;
};

}  // namespace tegula::inner
