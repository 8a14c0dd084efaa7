// Which operators gathered their operands: for lack of a rule, or because it was the cheapest way.
// Ops are told by the label of a call (comm_log.h); what a program asks for itself (redistribute,
// full_tensor) does not count.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tegula/comm/comm_log.h"

namespace tegula::inner::comm {

class GatherReport {
 public:
  // Null unless the environment variable TEGULA_REPORT is set, and not to 0.
  static std::unique_ptr<GatherReport> if_asked_for();

  // Counts the entry if an operator gathered.
  void add(const CommEntry& entry);
  // A table of op, call, axis, calls and bytes; one line if nothing gathered.
  std::string to_string() const;

 private:
  std::vector<CommTotal> totals_;
};

}  // namespace tegula::inner::comm
