// What an operator that libtorch composes of others runs when it meets a DTensor. Above autograd.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tegula/operators/operator_entry.h"

namespace tegula::inner {

// The composition stays, unless the operator's family has another one of ops that autograd follows
// (a decomposition); plain tensors that it makes itself count as replicated while it runs. An
// out= form takes the universal path, since the composition would resize the tensor's storage.
class CompositeKernel final : public c10::OperatorKernel {
 public:
  // The entry lives as long as the process.
  explicit CompositeKernel(const OperatorEntry& entry) : entry_(entry) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  const OperatorEntry& entry_;
};

}  // namespace tegula::inner
