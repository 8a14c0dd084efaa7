// The kernel: what every operator runs when it meets a DTensor.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tegula/dispatch/decisions.h"
#include "tegula/dispatch/op_facts.h"

namespace tegula {

// One per claimed operator. Below autograd.
class Kernel final : public c10::OperatorKernel {
 public:
  // `index` counts the kernels of this process.
  Kernel(const c10::OperatorHandle& op, std::size_t index) : facts_(op), index_(index) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  // By a decision that is remembered. False if there is none.
  bool run_known(const c10::OperatorHandle& op, const CallKey& key, torch::jit::Stack& stack) const;
  void run_new(const c10::OperatorHandle& op, const CallKey& key, torch::jit::Stack& stack) const;

  OpFacts facts_;
  std::size_t index_;
};

// For an operator that libtorch composes of others: its own plain tensors count as replicated while
// it runs. Above autograd.
class CompositeKernel final : public c10::OperatorKernel {
 public:
  explicit CompositeKernel(const c10::OperatorHandle& op) : facts_(op) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  OpFacts facts_;
};

// What an operator runs when a DTensor meets a sparse, quantized or nested tensor: UsageError.
void refuse_other_layouts(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Makes every operator that libtorch knows, and every one that was registered since the last call,
// meet the kernel. Any thread; cheap if there is nothing new. All functions that make DTensors call
// it; call it yourself only if a library with operators is loaded while DTensors are in use.
void claim_operators();

}  // namespace tegula
