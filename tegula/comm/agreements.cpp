#include "tegula/comm/agreements.h"

#include <algorithm>

#include "tegula/base/hash.h"
#include "tegula/base/text.h"
#include "tegula/comm/lane.h"
#include "tegula/comm/world_state.h"

namespace tegula::inner::comm {

bool Agreements::Set::covers(const std::vector<int>& members) const {
  return lane == Lane::current() && std::all_of(members.begin(), members.end(), [&](int member) {
           return std::binary_search(ranks.begin(), ranks.end(), member);
         });
}

void Agreements::note(const std::vector<std::int64_t>& ranks, std::uint64_t hash,
                      std::string_view what, Kind kind) {
  if (!std::is_sorted(ranks.begin(), ranks.end())) {
    std::vector<std::int64_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    return note(sorted, hash, what, kind);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string& lane = Lane::current();
  auto set = std::find_if(sets_.begin(), sets_.end(),
                          [&](const Set& one) { return one.lane == lane && one.ranks == ranks; });
  if (set == sets_.end()) set = sets_.insert(set, {lane, ranks});
  set->hash = Hasher().add(set->hash).add(hash).result();
  if (kind == Kind::Error) ++set->errors;
  latest_.push_back({static_cast<std::size_t>(set - sets_.begin()), std::string(what), kind});
  if (latest_.size() > 2 * kNamed) latest_.pop_front();
  notes_.fetch_add(1, std::memory_order_relaxed);
}

Agreed Agreements::among(const std::vector<int>& ranks, const Agreed& before) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Agreed agreed;
  agreed.notes = notes();
  for (const Set& set : sets_) {
    if (!set.covers(ranks)) continue;
    agreed.hash += set.hash;
    agreed.errors += set.errors;
  }
  const std::uint64_t fresh = agreed.notes - before.notes;
  std::vector<std::string> names;
  for (auto note = latest_.rbegin(); note != latest_.rend() && names.size() < kNamed; ++note) {
    if (static_cast<std::uint64_t>(note - latest_.rbegin()) >= fresh) break;
    if (!sets_[note->set].covers(ranks)) continue;
    if (note->kind == Kind::Error) {
      names = {note->what};
      break;
    }
    const bool is_known = std::find(names.begin(), names.end(), note->what) != names.end();
    if (!is_known) names.push_back(note->what);
  }
  agreed.latest = join(names);
  return agreed;
}

void Agreements::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  sets_.clear();
  latest_.clear();
  notes_ = 0;
}

void agree(const World& world, const std::vector<std::int64_t>& ranks, std::uint64_t hash,
           std::string_view what) {
  if (ranks.size() < 2) return;
  state_of(world).agreements->note(ranks, hash, what);
}

}  // namespace tegula::inner::comm
