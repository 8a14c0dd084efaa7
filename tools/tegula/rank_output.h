// The output of ranks, cut into lines.
#pragma once

#include <cstdio>
#include <deque>
#include <string>
#include <string_view>

namespace tegula::cli {

// One stream of one rank: prints whole lines with a prefix and remembers the last ones; lines of
// more than 64 KiB are broken, so that a rank that ends none takes no more memory than that. On a
// terminal, a line that ends with a carriage return is shown until the next one is there.
class RankOutput {
 public:
  RankOutput(int rank, std::FILE* to);

  void add(std::string_view bytes);
  // Prints what has no line end yet.
  void finish();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void print(const std::string& line);
  void show(const std::string& line);

  bool on_terminal_;
  std::string prefix_;
  std::FILE* to_;
  std::string rest_;
  std::string shown_;  // what stands on the terminal without a line end
  std::deque<std::string> last_lines_;
};

}  // namespace tegula::cli
