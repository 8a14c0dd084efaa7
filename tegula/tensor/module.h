// Whole modules as DTensors, without a line of code per module.
//
//   distribute_module(*model, mesh, {{"layers.*.up.*", {Replicate(), Shard(0)}},
//                                    {"layers.*.down.weight", {Replicate(), Shard(1)}}});
//
// Functions that communicate are called by all ranks of the mesh with the same module and the same
// placements; what they refuse, they refuse before anything is changed or sent, on all ranks alike.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tegula/gradient/gradients.h"
#include "tegula/payload/guards.h"
#include "tegula/tensor/dtensor.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tegula {

// Where parameters and buffers go, by patterns of their names (name_patterns.h): * stands for any
// characters up to a dot, ** for any number of parts. The last pattern that matches a name counts,
// so exceptions stand last; names that none matches are replicated. UsageError: a pattern that
// matches nothing (the nearest names are shown), or only what later ones match, too.
using PlacementPatterns = std::vector<std::pair<std::string, Placements>>;

// The same as a function, asked once per tensor; of several names it is given the first.
using PlacementsByName =
    std::function<Placements(const std::string& name, const at::Tensor& tensor)>;

// Turns every parameter, buffer and existing gradient of the module into a DTensor, in place: all
// handles to them (the module's members, an optimizer) see it, parameters stay leaves. A parameter
// that stands in several places is converted once. One on the meta device gets tiles without
// values. The data of `source` counts, as for distribute_tensor.
//
// What is a DTensor already stays as it is if nothing is said of it (no pattern matches it); if it
// is placed otherwise than asked, that is a UsageError: use redistribute_module. UsageError that
// names the parameter for placements that do not fit.
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PlacementPatterns& patterns, const DistributeOptions& options = {});
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PlacementsByName& place, const DistributeOptions& options = {});
// Everything is replicated.
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const DistributeOptions& options = {});

// The same for a module that torch::jit::load gave. From then on TorchScript fuses no operators in
// this process: what it fuses reads memory itself.
void distribute_module(torch::jit::Module& module, const DeviceMesh& mesh,
                       const PlacementPatterns& patterns = {},
                       const DistributeOptions& options = {});

// Moves every parameter, buffer and gradient of a distributed module, in place, to where
// distribute_module would have put it; the mesh may be another one of the same world. What no
// pattern matches becomes replicated. What is there already is not touched, and nothing is sent for
// it. UsageError for a parameter or buffer that is no DTensor yet.
void redistribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                         const PlacementPatterns& patterns = {});
void redistribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                         const PlacementsByName& place);

// Brings the state that an optimizer has gathered so far (momenta and the like) to where its
// parameters are now, whether it was plain or placed otherwise. For optimizers of libtorch: SGD,
// Adam, AdamW, Adagrad, RMSprop. UsageError for others that have state.
void distribute_optimizer_state(torch::optim::Optimizer& optimizer,
                                const DistributeOptions& options = {});

// What becomes of the reductions that the gradients of the module's parameters owe
// (gradient/gradients.h); outranks what was said for single parameters. Parameters that are plain,
// or whose mesh lacks an axis that the policy names, are a UsageError.
void set_gradient_policy(torch::nn::Module& module, const GradientPolicy& policy);

}  // namespace tegula
