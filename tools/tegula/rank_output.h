// The output of ranks, cut into lines.
#pragma once

#include <cstdio>
#include <deque>
#include <string>
#include <string_view>

namespace tegula::cli {

// One stream of one rank: prints whole lines with a prefix and remembers the last ones.
class RankOutput {
 public:
  RankOutput(int rank, std::FILE* to);

  void add(std::string_view bytes);
  // Prints what has no line end yet.
  void finish();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void print(const std::string& line);

  std::string prefix_;
  std::FILE* to_;
  std::string rest_;
  std::deque<std::string> last_lines_;
};

}  // namespace tegula::cli
