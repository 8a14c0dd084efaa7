#include "bench/resident.h"

#include <fstream>
#include <string>

#include "tegula/base/error.h"

namespace tegula::bench {
namespace {

// A line of /proc/self/status, in kB.
double status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double value = 0;
    if (word == name && file >> value) return value;
  }
  throw InternalError("the system does not say how much memory this process has")
      .fact("line", name);
}

}  // namespace

PeakMemory::PeakMemory() {
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak so far is forgotten
  before_ = status("VmRSS:");
}

double PeakMemory::megabytes() const { return (status("VmHWM:") - before_) / 1024; }

}  // namespace tegula::bench
