// The kernel: what every operator runs when it meets a DTensor. Below autograd.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "tegula/dispatch/decision.h"
#include "tegula/operators/call_key.h"
#include "tegula/operators/operator_entry.h"

namespace tegula::inner {

// One per claimed operator; looks at the operator's entry alone.
class Kernel final : public c10::OperatorKernel {
 public:
  // The entry lives as long as the process.
  explicit Kernel(const OperatorEntry& entry) : entry_(entry) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

  // The steps of a call, for kernels that make the key from their own arguments (unboxed.h).
  const OperatorEntry& entry() const { return entry_; }
  // The decision that is remembered; null if there is none, or this call is to be looked at.
  std::shared_ptr<const Decision> known(const CallKey& key) const;
  void run_known(const CallKey& key, const Decision& decision, torch::jit::Stack& stack) const;
  // Decides, runs, and remembers the decision under the key.
  void run_new(const CallKey& key, torch::jit::Stack& stack) const;

 private:
  void carry_out(const Decision& decision, torch::jit::Stack& stack) const;
  void decide(const CallKey& key, const Call& call, torch::jit::Stack& stack) const;

  const OperatorEntry& entry_;
};

// The universal path, for ops that draw random numbers or write tensors of a list in order, too.
Values run_whole(const Call& call);

// A call among whose arguments is no DTensor: a tensor from nothing, or a plain call.
Values run_without_dtensors(const Call& call);

// The results take the place of the arguments on top of the stack.
void replace_arguments(torch::jit::Stack& stack, std::size_t arguments, Values results);

}  // namespace tegula::inner
