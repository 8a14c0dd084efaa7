// The idea: a hash table per operator, and the entry that was found last, since programs call an op
// on the same kinds of tensors again and again. One lock that is never held for long.
#include "tegula/dispatch/decision_cache.h"

#include <algorithm>
#include <mutex>

#include "tegula/base/hash.h"
#include "tegula/comm/recovery.h"
#include "tegula/ops/families.h"

namespace tegula::inner {
namespace {

// Decisions hold routes (redistribute/routes.h).
const bool kForgetsDecisionsInRecovery = [] {
  comm::on_recovery([](const World& world) { world.part<DecisionCache>().forget(); });
  return true;
}();

}  // namespace

std::size_t DecisionCache::Hash::operator()(std::span<const std::uint64_t> words) const {
  Hasher hasher;
  for (std::uint64_t word : words) hasher.add(word);
  return hasher.result();
}

bool DecisionCache::Equal::operator()(std::span<const std::uint64_t> a,
                                      std::span<const std::uint64_t> b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void DecisionCache::forget_if_rules_changed(std::vector<Table>& forgotten) {
  const std::uint64_t version = rule_table().version();
  if (version == rules_version_) return;
  forgotten.swap(tables_);
  rules_version_ = version;
}

std::shared_ptr<const Decision> DecisionCache::find(std::size_t op, const CallKey& key) {
  std::vector<Table> forgotten;
  const std::lock_guard lock(lock_);
  forget_if_rules_changed(forgotten);
  if (op >= tables_.size()) return nullptr;
  Table& table = tables_[op];
  if (table.recent && Equal()(table.recent->first, key.words())) {
    return table.recent->second.decision;
  }
  const auto found = table.entries.find(key.words());
  if (found == table.entries.end()) return nullptr;
  table.recent = &*found;
  return found->second.decision;
}

std::vector<DTensorSpec> DecisionCache::specs(std::size_t op, const CallKey& key) {
  const std::lock_guard lock(lock_);
  if (op >= tables_.size()) return {};
  const auto found = tables_[op].entries.find(key.words());
  return found == tables_[op].entries.end() ? std::vector<DTensorSpec>() : found->second.specs;
}

void DecisionCache::remember(std::size_t op, const CallKey& key,
                             std::shared_ptr<const Decision> decision,
                             std::vector<DTensorSpec> specs) {
  const std::span<const std::uint64_t> words = key.words();
  Entry entry{std::move(decision), std::move(specs)};
  std::vector<Table> forgotten;
  const std::lock_guard lock(lock_);
  forget_if_rules_changed(forgotten);
  if (op >= tables_.size()) tables_.resize(op + 1);
  Table& table = tables_[op];
  if (table.entries.size() >= most_per_op_) {
    forgotten.push_back(std::move(table));
    table = {};
  }
  table.entries.insert_or_assign(std::vector<std::uint64_t>(words.begin(), words.end()),
                                 std::move(entry));
}

void DecisionCache::keep_at_most(std::size_t per_op) {
  const std::lock_guard lock(lock_);
  most_per_op_ = per_op;
}

std::size_t DecisionCache::size() {
  const std::lock_guard lock(lock_);
  std::size_t count = 0;
  for (const Table& table : tables_) count += table.entries.size();
  return count;
}

std::set<std::string_view> DecisionCache::ways(std::size_t op) {
  const std::lock_guard lock(lock_);
  std::set<std::string_view> names;
  if (op >= tables_.size()) return names;
  for (const auto& [key, entry] : tables_[op].entries) names.insert(name_of(*entry.decision));
  return names;
}

void DecisionCache::forget() {
  std::vector<Table> forgotten;
  const std::lock_guard lock(lock_);
  forgotten.swap(tables_);
}

}  // namespace tegula::inner
