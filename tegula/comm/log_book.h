// Where the groups of a world note their calls, for the logs (comm_log.h) that stand.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "tegula/comm/comm_log.h"
#include "tegula/comm/gather_report.h"

namespace tegula::inner::comm {

// One call, in all logs that stood when it was started.
struct LogLine {
  CommEntry entry;  // but for its seconds
  std::atomic<std::int64_t> nanoseconds = 0;
  std::atomic<std::int64_t> received = 0;  // bytes that were not known before they came
};

class LogBook {
 public:
  // With a report if the environment asks for one.
  LogBook();
  // Whether a log stands or a report is written.
  bool is_open() const { return open_.load(std::memory_order_relaxed) != 0; }
  void open(CommLog& log);
  void close(CommLog& log);
  // To the standard error, if there is a report.
  void print_report();
  // In all open logs and the report; null if there is no log.
  std::shared_ptr<LogLine> write(CommEntry entry);

 private:
  std::atomic<int> open_;
  std::mutex mutex_;
  std::vector<CommLog*> logs_;
  std::unique_ptr<GatherReport> report_;  // null: nobody asked for one
};

// Adds the time it stands to a line, if there is one.
class LogTime {
 public:
  using Clock = std::chrono::steady_clock;
  explicit LogTime(const std::shared_ptr<LogLine>& line) : line_(line.get()) {
    if (line_ != nullptr) begin_ = Clock::now();
  }
  ~LogTime() {
    if (line_ != nullptr) {
      line_->nanoseconds += std::chrono::nanoseconds(Clock::now() - begin_).count();
    }
  }
  LogTime(const LogTime&) = delete;
  LogTime& operator=(const LogTime&) = delete;

 private:
  LogLine* line_;
  Clock::time_point begin_;
};

}  // namespace tegula::inner::comm
