// Paranoid mode, for finding where ranks begin to differ: TEGULA_CHECK=1 in the environment checks
// every op, TEGULA_CHECK=0.01 one in a hundred, the same ones on all ranks.
#pragma once

#include "tegula/operators/call.h"

namespace tegula::inner {

// Compares across ranks what should be the same on all of them: replicas of DTensors, plain tensors
// that count as replicated, and the fibers of a tensor on a slice of the call's mesh. UsageError
// that names op, spec and ranks at the first difference. Does nothing unless the mode is on.
void check_replicas(const Call& call);

// The same for a tile of which somebody says that it is one of this spec; `what` says who. Also if
// the mode is off: ask first.
void check_replicas(const std::string& what, const at::Tensor& tile, const DTensorSpec& spec,
                    const World& world);

// Whether the mode is on for this rank.
bool is_checking(const World& world);

// A result on all ranks.
struct WholeResult {
  at::Tensor whole;
  double greatest_part = 0;  // if it was the sum of parts: the greatest element of all of them
  bool owes = false;         // it was
};

// What the universal path makes of a call, to compare with what a rule made of it: made before the
// op runs, since the op may write. Does nothing unless the mode is on, nor for a list op that
// writes tensors which share memory.
class Witness {
 public:
  explicit Witness(const Call& call);
  // The results on top of the stack. InternalError that names op and specs if they differ.
  void compare(const torch::jit::Stack& stack) const;

 private:
  const Call& call_;
  bool is_due_ = false;
  std::vector<WholeResult> expected_;  // list members counted
  double greatest_operand_ = 0;        // element of operands, by size
};

// Compares the views that a call made of tiles with what libtorch makes of the whole. `results`:
// one view, or a list of them. InternalError that names op and spec if one differs. What has not
// been written yet may be viewed: NaNs are alike, and each rank looks at its own replica. Does
// nothing unless the mode is on.
void check_views(const Call& call, const std::vector<c10::IValue>& results);

}  // namespace tegula::inner
