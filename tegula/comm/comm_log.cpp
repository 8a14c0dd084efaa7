// A world has one book. Groups write a line when a call starts, if a log stands; all logs share the
// line, and whoever is held up by the call adds the time to it.
#include "tegula/comm/comm_log.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/comm/log_book.h"
#include "tegula/comm/world_state.h"

namespace tegula {

using namespace inner;

namespace inner::comm {

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

LogBook::LogBook() : open_(0), report_(GatherReport::if_asked_for()) {
  if (report_) ++open_;
}

void LogBook::print_report() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (report_) std::fputs(report_->to_string().c_str(), stderr);
}

std::shared_ptr<LogLine> LogBook::write(CommEntry entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (report_) report_->add(entry);
  if (logs_.empty()) return nullptr;
  auto line = std::make_shared<LogLine>();
  line->entry = std::move(entry);
  for (CommLog* log : logs_) {
    const std::lock_guard<std::mutex> log_lock(log->mutex_);
    log->lines_.push_back(line);
  }
  return line;
}

}  // namespace inner::comm

namespace {

std::string hyphened(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// "all-reduce sum"
std::string call_name(const CommEntry& entry) {
  std::string text = hyphened(name_of(entry.kind));
  if (entry.reduction) text += " " + std::string(name_of(*entry.reduction));
  return text;
}

}  // namespace

std::string to_string(const CommEntry& entry) {
  std::string text = call_name(entry);
  text += " over " + entry.axis + " (" + counted(entry.ranks, "rank", "ranks") + "): ";
  text += in_thousands(entry.bytes) + (entry.bytes == 1 ? " byte" : " bytes");
  if (entry.tensors != 1) text += " in " + counted(entry.tensors, "tensor", "tensors");
  return entry.op.empty() ? text : text + ", for " + entry.op;
}

void add_to(std::vector<CommTotal>& totals, const CommEntry& entry) {
  const auto found = std::find_if(totals.begin(), totals.end(), [&](const CommTotal& total) {
    const CommEntry& other = total.entry;
    return other.op == entry.op && other.kind == entry.kind && other.axis == entry.axis &&
           other.ranks == entry.ranks && other.reduction == entry.reduction;
  });
  if (found == totals.end()) {
    totals.push_back({entry, 1});
    return;
  }
  found->entry.bytes += entry.bytes;
  found->entry.seconds += entry.seconds;
  found->entry.tensors += entry.tensors;
  ++found->calls;
}

std::vector<CommTotal> by_bytes(std::vector<CommTotal> totals) {
  std::stable_sort(totals.begin(), totals.end(), [](const CommTotal& a, const CommTotal& b) {
    return a.entry.bytes > b.entry.bytes;
  });
  return totals;
}

std::string to_string(const std::vector<CommTotal>& totals) {
  Table table({"op", "call", "axis", "calls", "bytes", "seconds"});
  for (const auto& [entry, calls] : totals) {
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.4f", entry.seconds);
    table.add({entry.op.empty() ? "-" : entry.op, call_name(entry), entry.axis, in_thousands(calls),
               in_thousands(entry.bytes), seconds});
  }
  std::ostringstream text;
  table.print(text);
  return text.str();
}

CommLog::CommLog(const World& world) : book_(world.state().log_book) { book_->open(*this); }

CommLog::~CommLog() { book_->close(*this); }

std::vector<CommEntry> CommLog::entries() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CommEntry> entries;
  for (const std::shared_ptr<comm::LogLine>& line : lines_) {
    entries.push_back(line->entry);
    entries.back().bytes += line->received.load();
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

std::vector<CommTotal> CommLog::totals() const {
  std::vector<CommTotal> totals;
  for (const CommEntry& entry : entries()) add_to(totals, entry);
  return by_bytes(std::move(totals));
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
