// The idea: each family looks at every operator once and adds what it knows.
#include "tegula/operators/operator_entry.h"

#include "tegula/base/error.h"

namespace tegula::inner {

const OperatorEntry& OperatorTable::entry(const c10::OperatorHandle& op) {
  const std::string name = toString(op.operator_name());
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const OperatorEntry>& known = entries_[name];
  if (!known) {
    if (!op.hasSchema()) {
      throw UsageError("an operator without a schema cannot be used")
          .fact("op", name)
          .hint("load the library that defines it first");
    }
    OperatorNotes notes;
    for (const Describe describe : families_) describe(op, notes);
    known = std::make_unique<const OperatorEntry>(op, std::move(notes), entries_.size() - 1);
  }
  return *known;
}

}  // namespace tegula::inner
