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

  // The steps of a call, for kernels that make the key from their own arguments (unboxed.h).
  const OpFacts& facts() const { return facts_; }
  // The decision that is remembered; null if there is none, or every call is to be looked at.
  std::shared_ptr<const Decision> known(const CallKey& key) const;
  void run_known(const c10::OperatorHandle& op, const Decision& decision,
                 torch::jit::Stack& stack) const;
  // Remembers what it decides under the key.
  void run_new(const c10::OperatorHandle& op, const CallKey& key, torch::jit::Stack& stack) const;

 private:
  OpFacts facts_;
  std::size_t index_;
};

// One view that takes one call on the tile.
at::Tensor run_view(const ViewPlan& plan, const at::Tensor& base);

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
