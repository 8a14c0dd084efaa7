// Whole modules as DTensors, without a line of code per module.
#pragma once

#include <functional>
#include <string>

#include "tegula/dispatch/guards.h"
#include "tegula/tensor/dtensor.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tegula {

// Where a parameter or buffer goes, by its name in the module ("layers.0.weight").
using PlacementsByName =
    std::function<Placements(const std::string& name, const at::Tensor& tensor)>;

// Turns every parameter, buffer and existing gradient of the module into a DTensor, in place: all
// handles to them (the module's members, an optimizer) see it, parameters stay leaves. A parameter
// that stands in several places is converted once, under its first name. What is a DTensor already
// stays; one on the meta device gets tiles without values. `place` empty: everything is replicated.
// The data of `source` counts, as for distribute_tensor.
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PlacementsByName& place = {}, const DistributeOptions& options = {});

// Brings the state that an optimizer has gathered so far (momenta and the like) to where its
// parameters are now. For optimizers of libtorch: SGD, Adam, AdamW, Adagrad, RMSprop. UsageError
// for others that have state.
void distribute_optimizer_state(torch::optim::Optimizer& optimizer,
                                const DistributeOptions& options = {});

}  // namespace tegula
