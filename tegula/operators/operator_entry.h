// OperatorEntry: all that is known about one operator, in one place, made when it is claimed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tegula/operators/op_facts.h"
#include "tegula/operators/operator_notes.h"

namespace tegula::inner {

class OperatorEntry {
 public:
  OperatorEntry(c10::OperatorHandle handle, OperatorNotes family_notes, std::size_t number)
      : op(std::move(handle)), notes(std::move(family_notes)), facts(op, notes), index(number) {}

  const c10::OperatorHandle op;
  const OperatorNotes notes;  // what its family says
  const OpFacts facts;        // what its schema says, corrected by the notes
  const std::size_t index;    // counts the entries of this process
};

// Writes what a family knows about an operator into its notes; does nothing for operators of
// others.
using Describe = void (*)(const c10::OperatorHandle& op, OperatorNotes& notes);

// The operators of this process that were asked for so far. Any thread.
class OperatorTable {
 public:
  explicit OperatorTable(std::vector<Describe> families) : families_(std::move(families)) {}

  // The operator's entry, made if it is new. Lives as long as the process. UsageError for an
  // operator that has a name but no schema yet.
  const OperatorEntry& entry(const c10::OperatorHandle& op);

 private:
  std::vector<Describe> families_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<const OperatorEntry>> entries_;
};

}  // namespace tegula::inner
