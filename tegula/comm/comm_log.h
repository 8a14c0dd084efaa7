// What a rank communicates, and what for.
//
//   CommLog log(world);
//   at::Tensor y = at::add(partial, x);
//   std::cout << log.to_string();
//   // all-reduce sum over tp (2 ranks): 2,048 bytes, for aten::add.Tensor
//
// The library labels what it starts: "aten::add.Tensor" for an op (for one that is carried out by
// others, "aten::_log_softmax" rather than the "aten::sub.Tensor" inside of it), "redistribute",
// "full_tensor", "from_local", "distribute_tensor", "gradient of redistribute", "gradient of
// from_local", "gradient of a leaf".
//
// A program that is run with TEGULA_REPORT=1 needs no log to learn which operators gathered their
// operands: rank 0 prints a table of them to the standard error when its world ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/comm/call.h"
#include "tegula/comm/world.h"
#include "tegula/placement/reduce_op.h"

namespace tegula {

namespace inner::comm {
class LogBook;
struct LogLine;
}  // namespace inner::comm

// One call of a Group: a collective, a send or a recv.
struct CommEntry {
  CommKind kind = CommKind::Barrier;
  std::string axis;        // of the mesh ("tp"; "dp_tp" for both as one), else the group's name
  int ranks = 1;           // of the group
  std::int64_t bytes = 0;  // of this rank's input; of a recv, of what it gets
  std::optional<ReduceOp> reduction;
  std::string op;            // the CommLabel it was made under; empty: none
  double seconds = 0;        // that this rank was held up, waiting for others included
  std::int64_t tensors = 1;  // of a coalesced call as many as its list has

  bool operator==(const CommEntry&) const = default;
};

// "all-reduce sum over tp (2 ranks): 2,048 bytes, for aten::add.Tensor"
// "all-reduce sum over dp (2 ranks): 4,096 bytes in 3 tensors, for gradient of a leaf"
std::string to_string(const CommEntry& entry);

// What one op communicated in one way: the entries of equal op, kind, reduction and axis as one.
struct CommTotal {
  CommEntry entry;  // sums of bytes, seconds and tensors
  std::int64_t calls = 0;
};

// Counts an entry in its total, which is made if there is none.
void add_to(std::vector<CommTotal>& totals, const CommEntry& entry);
// Most bytes first; those of equal bytes stay in their order.
std::vector<CommTotal> by_bytes(std::vector<CommTotal> totals);

// A table with a line per total:
//
//   op                call            axis  calls   bytes  seconds
//   aten::mm          all-reduce sum  tp        8  65,536   0.0012
//   full_tensor       all-gather      tp        1   4,096   0.0001
std::string to_string(const std::vector<CommTotal>& totals);

// Lists the calls that this rank starts on any group of the world while the log stands, in their
// order. Calls that were refused (UsageError) are not made and not listed; those that failed are.
// Several logs may stand at a time, each lists all. Any thread may use it. Without a log, a call
// costs one atomic load more.
class CommLog {
 public:
  explicit CommLog(const World& world);
  ~CommLog();
  CommLog(const CommLog&) = delete;
  CommLog& operator=(const CommLog&) = delete;

  std::vector<CommEntry> entries() const;
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  // Sums over the entries.
  std::int64_t bytes() const;
  double seconds() const;
  // Forgets the entries so far; the log stands on.
  void clear();
  // One line per entry.
  std::string to_string() const;
  // What each op communicated in each way, most bytes first; and that as a table.
  std::vector<CommTotal> totals() const;
  std::string summary() const { return tegula::to_string(totals()); }

 private:
  friend class inner::comm::LogBook;
  std::shared_ptr<inner::comm::LogBook> book_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<inner::comm::LogLine>> lines_;
};

// Says what the calls of this thread are for, as long as it stands. Of several the innermost
// counts, except within one that reaches over all: what is done for a softmax, by whatever ops, is
// for the softmax. The text must live as long; it is read only when a log stands.
class CommLabel {
 public:
  enum class Reach : std::uint8_t { ToInnerLabels, OverInnerLabels };

  explicit CommLabel(std::string_view text, Reach reach = Reach::ToInnerLabels)
      : text_(text), outer_(innermost_), reach_(reach) {
    if (outer_ != nullptr && outer_->reach_ == Reach::OverInnerLabels) {
      text_ = outer_->text_;
      reach_ = Reach::OverInnerLabels;
    }
    innermost_ = this;
  }
  ~CommLabel() { innermost_ = outer_; }
  CommLabel(const CommLabel&) = delete;
  CommLabel& operator=(const CommLabel&) = delete;

  // Of this thread; empty: none.
  static std::string_view current() {
    return innermost_ == nullptr ? std::string_view() : innermost_->text_;
  }

 private:
  static inline constinit thread_local const CommLabel* innermost_ = nullptr;
  std::string_view text_;
  const CommLabel* outer_;
  Reach reach_;
};

}  // namespace tegula
