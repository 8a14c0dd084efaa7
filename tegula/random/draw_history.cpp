// The idea: words are counted, so a word says how many draws were made, and which streams made them
// is remembered as runs. Going back and forth adds up the runs in between.
#include "tegula/random/draw_history.h"

#include <algorithm>

namespace tegula::inner {
namespace {

// Modulo 2^64; each round doubles the number of right bits.
constexpr std::uint64_t inverse_of(std::uint64_t odd) {
  std::uint64_t inverse = odd;
  for (int round = 0; round < 5; ++round) inverse *= 2 - odd * inverse;
  return inverse;
}
constexpr std::uint64_t kInverse = inverse_of(DrawHistory::kStep);
static_assert(kInverse * DrawHistory::kStep == 1);

std::uint64_t total_of(const DrawCounts& counts) {
  std::uint64_t total = 0;
  for (const auto& [stream, count] : counts) total += count;
  return total;
}

}  // namespace

DrawHistory::DrawHistory(std::uint64_t base, DrawCounts counts)
    : base_(base), counts_(std::move(counts)), position_(total_of(counts_)), begin_(position_) {}

std::uint64_t DrawHistory::position_of(std::uint64_t word) const {
  return (word - base_) * kInverse;
}

bool DrawHistory::knows(std::uint64_t word) const {
  const std::uint64_t position = position_of(word);
  return begin_ <= position && position <= end();
}

std::uint64_t DrawHistory::next(std::uint64_t stream) {
  record(stream);
  ++position_;
  return word_after(counts_[stream]++);
}

// The run that has the draw made at this position.
std::deque<DrawHistory::Run>::iterator DrawHistory::run_at(std::uint64_t position) {
  return std::upper_bound(runs_.begin(), runs_.end(), position,
                          [](std::uint64_t at, const Run& run) { return at < run.end; });
}

void DrawHistory::resume(std::uint64_t word) {
  const std::uint64_t position = position_of(word);
  const auto [from, to] = std::minmax(position_, position);
  std::uint64_t at = from;
  for (auto run = run_at(from); at < to; ++run) {
    const std::uint64_t end = std::min(run->end, to);
    counts_[run->stream] += position > position_ ? end - at : at - end;
    at = end;
  }
  position_ = position;
  std::erase_if(counts_, [](const auto& entry) { return entry.second == 0; });
}

void DrawHistory::record(std::uint64_t stream) {
  if (position_ < end()) {
    if (run_at(position_)->stream == stream) return;  // as before
    forget_after(position_);
  }
  if (!runs_.empty() && runs_.back().stream == stream) {
    ++runs_.back().end;
    return;
  }
  runs_.push_back({stream, position_ + 1});
  if (runs_.size() > kMostRuns) {
    begin_ = runs_.front().end;
    runs_.pop_front();
  }
}

void DrawHistory::forget_after(std::uint64_t position) {
  while (!runs_.empty() && runs_.back().end > position) {
    const std::uint64_t begin = runs_.size() > 1 ? runs_[runs_.size() - 2].end : begin_;
    if (begin < position) {
      runs_.back().end = position;
    } else {
      runs_.pop_back();
    }
  }
}

DrawHistory& DrawHistories::at(std::uint64_t word) {
  if (!latest_first_.empty() && latest_first_.front().word() == word) return latest_first_.front();
  const auto found = std::find_if(latest_first_.begin(), latest_first_.end(),
                                  [&](const DrawHistory& one) { return one.knows(word); });
  if (found == latest_first_.end()) {
    add(DrawHistory(word));
  } else {
    latest_first_.splice(latest_first_.begin(), latest_first_, found);
    latest_first_.front().resume(word);
  }
  return latest_first_.front();
}

void DrawHistories::add(DrawHistory history) {
  latest_first_.push_front(std::move(history));
  if (latest_first_.size() > kMost) latest_first_.pop_back();
}

}  // namespace tegula::inner
