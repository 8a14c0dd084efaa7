// Activation checkpointing: a function whose inner results are not kept for backward but computed
// again there. On plain tensors as on DTensors.
//
//   at::Tensor y = checkpoint([&](const at::Tensor& x) { return block->forward(x); }, x);
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tegula {

using CheckpointFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// What the function gives. It is called once more in backward, with the same inputs and the same
// random numbers (torch's default CPU generator, and what DTensors draw, stand in between as they
// did before; afterwards as if it had not been called), under the same grad and autocast modes.
// Gradients reach the inputs, and the leaves that the function uses otherwise: parameters, say.
// Everything else that gives it tensors with a history, a capture of an activation included, is not
// seen by backward, so pass activations as inputs. It must not change its inputs. Checkpoints may
// be nested.
//
// In backward, UsageError: create_graph, or torch::autograd::grad for chosen inputs (neither can
// reach what the function uses otherwise); the second call gives another number of results.
std::vector<at::Tensor> checkpoint(const CheckpointFunction& function,
                                   const std::vector<at::Tensor>& inputs);
// The same for one input and one result.
at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function,
                      const at::Tensor& input);

}  // namespace tegula
