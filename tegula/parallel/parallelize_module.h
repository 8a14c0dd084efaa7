// A module whose layers are split over a mesh axis, by a plan (styles.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "tegula/mesh/device_mesh.h"
#include "tegula/parallel/styles.h"
#include "tegula/tensor/dtensor.h"

namespace torch::nn {
class Module;
}

namespace tegula {

// Places every parameter of the module along the one axis of `mesh` as the plan says, in place;
// what the plan does not name, and buffers, are replicated. `mesh` may be a slice, mesh["tp"]:
// parameters lie on its root, replicated along its other axes, or, if they are DTensors there
// already, as they are along these. So parallelize_module for several axes can be called one after
// the other. Sizes need not be multiples of the axis. The data of `options.source` counts for what
// is plain, as for distribute_module.
//
// UsageError, one with all that is wrong, before anything is changed: a pattern that matches no
// module or parameter, with the nearest names, or only what later ones match; placements that do
// not fit; a parameter that is cut along the axis already, or on another mesh; a mesh of several
// axes.
void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const DistributeOptions& options = {});

// What parallelize_module would do, as a table: each parameter, its style and placements, and the
// bytes that the fullest rank holds of it, beside those of the whole; nothing is changed or sent.
// UsageError as above.
std::string explain(const ParallelPlan& plan, const torch::nn::Module& module,
                    const DeviceMesh& mesh);

// A DTensor placed so along one axis of its mesh, the others as they are; differentiable, as
// redistribute. For forward functions, at places where propagation should not choose. A plain
// tensor stays as it is, so that the same module runs on plain tensors.
at::Tensor placed(const at::Tensor& tensor, std::string_view axis, const Placement& placement);

}  // namespace tegula
