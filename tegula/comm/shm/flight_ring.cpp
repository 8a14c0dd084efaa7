#include "tegula/comm/shm/flight_ring.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace tegula::inner::shm {
namespace {

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

template <std::size_t Size>
void set_text(std::array<char, Size>& place, std::string_view text) {
  const std::size_t length = text.copy(place.data(), Size - 1);
  place[length] = '\0';
}

template <std::size_t Size>
std::string text_in(const std::array<char, Size>& place) {
  return {place.begin(), std::find(place.begin(), place.end(), '\0')};
}

}  // namespace

std::uint64_t FlightRing::begin(const comm::Call& call, std::string_view group,
                                std::string_view what_for) {
  const std::uint64_t number = count_.fetch_add(1, std::memory_order_relaxed) + 1;
  Record& record = records_[number % kKept];
  record.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // before anything below is seen
  record.has_ended.store(0, std::memory_order_relaxed);
  record.nanoseconds = now();
  record.call = call;
  set_text(record.group, group);
  set_text(record.what_for, what_for);
  record.number.store(number, std::memory_order_release);
  return number;
}

void FlightRing::end(std::uint64_t number) {
  Record& record = records_[number % kKept];
  if (record.number.load(std::memory_order_relaxed) == number) {
    record.has_ended.store(1, std::memory_order_relaxed);
  }
}

std::string FlightRing::to_string(std::size_t count) const {
  const std::uint64_t last = count_.load(std::memory_order_acquire);
  const std::uint64_t first = last - std::min<std::uint64_t>({last, count, kKept - 1});
  std::string text;
  for (std::uint64_t number = first + 1; number <= last; ++number) {
    const Record& record = records_[number % kKept];
    if (record.number.load(std::memory_order_acquire) != number) continue;
    const comm::Call call = record.call;
    const std::string group = text_in(record.group);
    const std::string what_for = text_in(record.what_for);
    const auto age = static_cast<double>(now() - record.nanoseconds) / 1'000'000'000;
    const bool has_ended = record.has_ended.load(std::memory_order_relaxed) != 0;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (record.number.load(std::memory_order_relaxed) != number) continue;  // overwritten meanwhile
    char ago[32];
    std::snprintf(ago, sizeof(ago), "%.1f", age);
    text += "    " + call.text() + ", of " + group + (what_for.empty() ? "" : ", for " + what_for) +
            ", " + ago + " s ago" + (has_ended ? "" : ", under way") + "\n";
  }
  return text;
}

}  // namespace tegula::inner::shm
