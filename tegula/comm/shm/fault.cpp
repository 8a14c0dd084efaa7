#include "tegula/comm/shm/fault.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace tegula::inner::shm {
namespace {

// The parts of an error in one text: sentence, hint, then label and value of each fact.
constexpr char kSeparator = '\x1f';

std::string flattened(const CommError& error) {
  std::string text = error.sentence() + kSeparator + error.hint();
  for (const auto& [label, value] : error.facts()) text += kSeparator + label + kSeparator + value;
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == kSeparator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

CommError unflattened(const std::string& text) {
  const std::vector<std::string> parts = split(text);
  CommError error(parts[0]);
  for (std::size_t i = 2; i + 1 < parts.size(); i += 2)
    std::move(error).fact(parts[i], parts[i + 1]);
  if (parts.size() > 1 && !parts[1].empty()) std::move(error).hint(parts[1]);
  return error;
}

}  // namespace

bool Fault::raise(const CommError& error) {
  std::uint32_t none = kNone;
  if (!state_.compare_exchange_strong(none, kWriting)) return false;
  const std::string text = flattened(error);
  const std::size_t size = std::min(text.size(), kCapacity - 1);
  std::memcpy(text_, text.data(), size);
  text_[size] = '\0';
  state_.store(kWritten, std::memory_order_release);
  return true;
}

CommError Fault::error() const {
  using namespace std::chrono_literals;
  for (int i = 0; i < 200 && state_.load(std::memory_order_acquire) == kWriting; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  if (state_.load(std::memory_order_acquire) != kWritten) {
    return CommError("a rank died while it reported an error")
        .hint("look at the other ranks' output");
  }
  return unflattened(text_);
}

}  // namespace tegula::inner::shm
