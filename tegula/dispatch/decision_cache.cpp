// The idea: a hash table per operator, guarded by one lock that is never held for long.
#include "tegula/dispatch/decision_cache.h"

#include <algorithm>

#include "tegula/base/hash.h"
#include "tegula/ops/families.h"

namespace tegula {

std::size_t DecisionCache::Hash::operator()(std::span<const std::uint64_t> words) const {
  Hasher hasher;
  for (std::uint64_t word : words) hasher.add(word);
  return hasher.result();
}

bool DecisionCache::Equal::operator()(std::span<const std::uint64_t> a,
                                      std::span<const std::uint64_t> b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void DecisionCache::forget_if_rules_changed() {
  const std::uint64_t version = rule_table().version();
  if (version == rules_version_) return;
  tables_.clear();
  rules_version_ = version;
}

std::shared_ptr<const Decision> DecisionCache::find(std::size_t op, const CallKey& key) {
  const std::lock_guard lock(mutex_);
  forget_if_rules_changed();
  if (op >= tables_.size()) return nullptr;
  const Table& table = tables_[op];
  const auto found = table.find(key.words());
  return found == table.end() ? nullptr : found->second.decision;
}

void DecisionCache::remember(std::size_t op, const CallKey& key,
                             std::shared_ptr<const Decision> decision) {
  const std::lock_guard lock(mutex_);
  forget_if_rules_changed();
  if (op >= tables_.size()) tables_.resize(op + 1);
  Table& table = tables_[op];
  if (table.size() >= most_per_op_) table.clear();
  const std::span<const std::uint64_t> words = key.words();
  Entry entry{std::move(decision), {}};
  for (const DTensorSpec* spec : key.specs()) entry.specs.push_back(*spec);
  table.insert_or_assign(std::vector<std::uint64_t>(words.begin(), words.end()), std::move(entry));
}

void DecisionCache::keep_at_most(std::size_t per_op) {
  const std::lock_guard lock(mutex_);
  most_per_op_ = per_op;
}

std::size_t DecisionCache::size() {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const Table& table : tables_) count += table.size();
  return count;
}

void DecisionCache::forget() {
  const std::lock_guard lock(mutex_);
  tables_.clear();
}

}  // namespace tegula
