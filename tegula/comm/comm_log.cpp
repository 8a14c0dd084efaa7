// A world has one book. Groups write a line when a call starts, if a log stands; all logs share the
// line, and whoever is held up by the call adds the time to it.
#include "tegula/comm/comm_log.h"

#include <algorithm>

#include "tegula/base/text.h"
#include "tegula/comm/log_book.h"
#include "tegula/comm/world_state.h"

namespace tegula {

namespace comm {

void LogBook::open(CommLog& log) {
  const std::lock_guard<std::mutex> lock(mutex_);
  logs_.push_back(&log);
  ++open_;
}

void LogBook::close(CommLog& log) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase(logs_, &log);
  --open_;
}

std::shared_ptr<LogLine> LogBook::write(CommEntry entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (logs_.empty()) return nullptr;
  auto line = std::make_shared<LogLine>();
  line->entry = std::move(entry);
  for (CommLog* log : logs_) {
    const std::lock_guard<std::mutex> log_lock(log->mutex_);
    log->lines_.push_back(line);
  }
  return line;
}

}  // namespace comm

namespace {

// 2048 -> "2,048"
std::string in_thousands(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, ",");
  return digits;
}

std::string hyphened(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace

std::string to_string(const CommEntry& entry) {
  std::string text = hyphened(name_of(entry.kind));
  if (entry.reduction) text += " " + std::string(name_of(*entry.reduction));
  text += " over " + entry.axis + " (" + counted(entry.ranks, "rank", "ranks") + "): ";
  text += in_thousands(entry.bytes) + (entry.bytes == 1 ? " byte" : " bytes");
  return entry.op.empty() ? text : text + ", for " + entry.op;
}

CommLog::CommLog(const World& world) : book_(world.state().log_book) { book_->open(*this); }

CommLog::~CommLog() { book_->close(*this); }

std::vector<CommEntry> CommLog::entries() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CommEntry> entries;
  for (const std::shared_ptr<comm::LogLine>& line : lines_) {
    entries.push_back(line->entry);
    entries.back().seconds = static_cast<double>(line->nanoseconds.load()) * 1e-9;
  }
  return entries;
}

std::size_t CommLog::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lines_.size();
}

std::int64_t CommLog::bytes() const {
  std::int64_t sum = 0;
  for (const CommEntry& entry : entries()) sum += entry.bytes;
  return sum;
}

double CommLog::seconds() const {
  double sum = 0;
  for (const CommEntry& entry : entries()) sum += entry.seconds;
  return sum;
}

void CommLog::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  lines_.clear();
}

std::string CommLog::to_string() const {
  std::vector<std::string> lines;
  for (const CommEntry& entry : entries()) lines.push_back(tegula::to_string(entry));
  return join(lines, "\n");
}

}  // namespace tegula
