#include "tools/tegula/rank_output.h"

#include <unistd.h>

namespace tegula::cli {
namespace {

constexpr std::size_t kRemembered = 100;
constexpr int kColours[] = {36, 33, 32, 35, 34, 31};

std::string prefix_of(int rank, std::FILE* to) {
  const std::string plain = "[" + std::to_string(rank) + "] ";
  if (isatty(fileno(to)) == 0) return plain;
  const int colour = kColours[static_cast<std::size_t>(rank) % std::size(kColours)];
  return "\033[" + std::to_string(colour) + "m" + plain + "\033[0m";
}

}  // namespace

RankOutput::RankOutput(int rank, std::FILE* to) : prefix_(prefix_of(rank, to)), to_(to) {}

void RankOutput::add(std::string_view bytes) {
  for (char c : bytes) {
    if (c == '\n') {
      print(rest_);
      rest_.clear();
    } else {
      rest_ += c;
    }
  }
  std::fflush(to_);
}

void RankOutput::finish() {
  if (!rest_.empty()) add("\n");
}

void RankOutput::print(const std::string& line) {
  std::fputs((prefix_ + line + "\n").c_str(), to_);
  last_lines_.push_back(line);
  if (last_lines_.size() > kRemembered) last_lines_.pop_front();
}

}  // namespace tegula::cli
