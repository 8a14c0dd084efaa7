// What a process needs of the machine's memory.
#pragma once

namespace tegula::bench {

// Resident memory that this process has come to need, at its peak, since this was made: what the
// libraries took before does not count. Memory that is shared with other processes does.
class PeakMemory {
 public:
  PeakMemory();
  double megabytes() const;

 private:
  double before_ = 0;
};

}  // namespace tegula::bench
