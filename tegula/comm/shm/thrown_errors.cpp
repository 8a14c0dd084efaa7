#include "tegula/comm/shm/thrown_errors.h"

#include <algorithm>

namespace tegula::inner::shm {
namespace {

using Words = std::array<std::uint64_t, ThrownErrors::kMostRanks / 64>;

Words words_of(const std::vector<int>& ranks) {
  Words words{};
  for (const int rank : ranks) {
    const auto place = static_cast<std::size_t>(rank);
    if (rank >= 0 && place < ThrownErrors::kMostRanks) words[place / 64] |= 1ULL << (place % 64);
  }
  return words;
}

}  // namespace

bool ThrownErrors::Set::has(int rank) const {
  const auto place = static_cast<std::size_t>(rank);
  return place < kMostRanks &&
         (ranks[place / 64].load(std::memory_order_relaxed) >> (place % 64) & 1U) != 0;
}

bool ThrownErrors::Set::is(const Words& wanted) const {
  return std::equal(wanted.begin(), wanted.end(), ranks.begin(),
                    [](std::uint64_t a, const std::atomic<std::uint64_t>& b) {
                      return a == b.load(std::memory_order_relaxed);
                    });
}

void ThrownErrors::add(const std::vector<int>& among, std::uint64_t lane, std::string_view text) {
  version_.fetch_add(1, std::memory_order_acq_rel);
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const bool is_inside = i < text.size() && i + 1 < text_.size();
    text_[i].store(is_inside ? text[i] : '\0', std::memory_order_relaxed);
  }
  version_.fetch_add(1, std::memory_order_release);
  if (among.empty()) return;
  const Words wanted = words_of(among);
  for (Set& set : sets_) {
    const bool is_free = set.thrown.load(std::memory_order_relaxed) == 0;
    const bool is_last = &set == &sets_.back();
    if (!is_free && !is_last && !(set.is(wanted) && set.lane.load() == lane)) continue;
    if (is_free) set.lane.store(lane);
    for (std::size_t i = 0; (is_free || is_last) && i < wanted.size(); ++i) {
      set.ranks[i].fetch_or(wanted[i], std::memory_order_relaxed);
    }
    set.thrown.fetch_add(1);
    return;
  }
}

bool ThrownErrors::is_ahead_of(const ThrownErrors& mine, int me, std::uint64_t lane) const {
  return std::any_of(sets_.begin(), sets_.end(), [&](const Set& set) {
    const std::uint64_t thrown = set.thrown.load();
    if (thrown == 0 || set.lane.load() != lane || !set.has(me)) return false;
    Words ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = set.ranks[i].load();
    const auto same = std::find_if(mine.sets_.begin(), mine.sets_.end(), [&](const Set& other) {
      return other.thrown.load() != 0 && other.lane.load() == lane && other.is(ranks);
    });
    return thrown > (same == mine.sets_.end() ? 0 : same->thrown.load());
  });
}

std::string ThrownErrors::last() const {
  std::string text;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint32_t version = version_.load(std::memory_order_acquire);
    text.clear();
    for (const std::atomic<char>& c : text_) {
      const char one = c.load(std::memory_order_relaxed);
      if (one == '\0') break;
      text += one;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version % 2 == 0 && version == version_.load(std::memory_order_relaxed)) break;
  }
  return text;
}

void ThrownErrors::clear() {
  for (Set& set : sets_) {
    set.thrown.store(0);
    for (std::atomic<std::uint64_t>& word : set.ranks) word.store(0);
  }
  text_[0].store('\0');
}

}  // namespace tegula::inner::shm
