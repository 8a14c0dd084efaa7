// Moves between plain tensors and DTensors that autograd can follow. The public functions
// (tensor/dtensor.h) check their arguments and call these.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "tegula/payload/payload.h"
#include "tegula/redistribute/route.h"

namespace tegula::inner {

enum class CallMode { Sync, Async };

// `tensor` by another spec of the same shape and dtype, on any mesh of its world.
at::Tensor move_to(const at::Tensor& tensor, const DTensorSpec& to, CallMode mode,
                   const RouteOptions& options);

// A tile as a tensor of this spec; its gradient is the tile of the gradient by `grad_spec`. Memory
// is shared if the tile lies as the spec says, or if its layout is said to be another one.
at::Tensor wrap_tile(const at::Tensor& tile, const DTensorSpec& spec, const DTensorSpec& grad_spec,
                     const World& world, Payload::Layout layout = Payload::Layout::Regular);

// The tile; its gradients form a tensor of `grad_spec`.
at::Tensor unwrap_tile(const at::Tensor& tensor, const DTensorSpec& grad_spec);

// What a linear function makes of a plain tensor; gradients take its transpose on their way back,
// and theirs the function again.
using LinearFunction = std::function<at::Tensor(const at::Tensor&)>;
at::Tensor apply_linear(const at::Tensor& tensor, const LinearFunction& function,
                        const LinearFunction& transpose);

// Where the tensor's gradient is once nothing is owed: as the tensor, or whole where its policies
// say so; dense.
DTensorSpec gradient_spec(const Payload& payload, const TensorMeta& gradient);

// Starts the reductions that a gradient owes, and gives what it is by `wanted` once they are done.
using StartReductions = std::function<at::Tensor(const at::Tensor& owing, const DTensorSpec& wanted,
                                                 const RouteOptions& options)>;

// A gradient, plain (then replicated) or not, placed as the tensor's gradient should be: reductions
// that it owes are done, or started by `start`, or left to others, as the policy says.
at::Tensor as_gradient_of(const at::Tensor& grad, const Payload& payload,
                          const GradientPolicy& policy, const StartReductions& start);

}  // namespace tegula::inner
