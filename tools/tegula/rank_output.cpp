#include "tools/tegula/rank_output.h"

#include <unistd.h>

#include <utility>

namespace tegula::cli {
namespace {

constexpr std::size_t kRemembered = 100;
constexpr std::size_t kLongestLine = std::size_t{64} << 10;
constexpr int kColours[] = {36, 33, 32, 35, 34, 31};

constexpr const char* kEraseRest = "\033[K";  // up to the end of the terminal's line

std::string prefix_of(int rank, bool on_terminal) {
  std::string plain = "[" + std::to_string(rank) + "] ";
  if (!on_terminal) return plain;
  const int colour = kColours[static_cast<std::size_t>(rank) % std::size(kColours)];
  return "\033[" + std::to_string(colour) + "m" + plain + "\033[0m";
}

}  // namespace

RankOutput::RankOutput(int rank, std::FILE* to)
    : on_terminal_(isatty(fileno(to)) != 0), prefix_(prefix_of(rank, on_terminal_)), to_(to) {}

void RankOutput::add(std::string_view bytes) {
  for (char c : bytes) {
    if (c == '\n') {
      print(rest_.empty() ? shown_ : rest_);
      rest_.clear();
      shown_.clear();
    } else if (c == '\r' && on_terminal_) {
      show(rest_);
      shown_ = std::exchange(rest_, {});
    } else {
      rest_ += c;
      if (rest_.size() == kLongestLine) print(std::exchange(rest_, {}));
    }
  }
  std::fflush(to_);
}

void RankOutput::finish() {
  if (!rest_.empty() || !shown_.empty()) add("\n");
}

void RankOutput::print(const std::string& line) {
  std::fputs((prefix_ + line + (on_terminal_ ? kEraseRest : "") + "\n").c_str(), to_);
  last_lines_.push_back(line);
  if (last_lines_.size() > kRemembered) last_lines_.pop_front();
}

// The cursor goes back, so that whoever prints next, this rank or another, overwrites the line.
void RankOutput::show(const std::string& line) {
  std::fputs((prefix_ + line + kEraseRest + "\r").c_str(), to_);
}

}  // namespace tegula::cli
