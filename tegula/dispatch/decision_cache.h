// The decisions that a world remembers: one look-up by the key of a call (operators/call_key.h).
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tegula/base/spin_lock.h"
#include "tegula/dispatch/decision.h"
#include "tegula/operators/call_key.h"

namespace tegula::inner {

// A part of a world (World::part). Any thread of the rank may use it.
class DecisionCache {
 public:
  // Of one op; when there are more, all of them are forgotten.
  static constexpr std::size_t kMostPerOp = 1024;

  // `op` counts operators (OperatorEntry::index). Null if there is none, or a rule was added since.
  std::shared_ptr<const Decision> find(std::size_t op, const CallKey& key);
  // Those that remember() was given with the decision; empty if there is none.
  std::vector<DTensorSpec> specs(std::size_t op, const CallKey& key);
  // `specs`: of the call's DTensors. They are kept, so that a tensor like one that is gone has the
  // same spec, and is found.
  void remember(std::size_t op, const CallKey& key, std::shared_ptr<const Decision> decision,
                std::vector<DTensorSpec> specs);
  // All of them: what they were decided by (the cost model) is no more.
  void forget();
  // Instead of kMostPerOp. Ranks need not agree: what is forgotten is decided again, alike.
  void keep_at_most(std::size_t per_op);
  // How many are remembered.
  std::size_t size();
  // In which ways the calls of an op that are remembered are carried out (decision.h name_of).
  std::set<std::string_view> ways(std::size_t op);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::span<const std::uint64_t> words) const;
    std::size_t operator()(const std::vector<std::uint64_t>& words) const {
      return (*this)(std::span<const std::uint64_t>(words));
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) const;
  };
  struct Entry {
    std::shared_ptr<const Decision> decision;
    std::vector<DTensorSpec> specs;
  };
  struct Table {
    std::unordered_map<std::vector<std::uint64_t>, Entry, Hash, Equal> entries;
    const std::pair<const std::vector<std::uint64_t>, Entry>* recent = nullptr;  // found last
  };

  // What is forgotten is given away, to go after the lock.
  void forget_if_rules_changed(std::vector<Table>& forgotten);

  SpinLock lock_;
  std::vector<Table> tables_;  // by op
  std::uint64_t rules_version_ = 0;
  std::size_t most_per_op_ = kMostPerOp;
};

}  // namespace tegula::inner
