// A module whose layers are split over a mesh axis, by a plan (styles.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
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

// The same, and below it what one step communicates: calls and bytes of one rank by kind and axis.
// The step is run on imagined ranks, for its shapes alone: meanwhile the module's parameters and
// buffers are on the mesh that the step is given, of the same axes on the device "meta", placed as
// the plan says; afterwards they are as they were. Nothing is sent, and no rank needs another.
//
//   explain(plan, *model, mesh["tp"], [&](const DeviceMesh& imagined) {
//     model->loss(zeros({64, 128}, imagined, {Shard(0), Replicate()}, at::kLong)).backward();
//   });
//
// A step that looks at values (item) throws what libtorch says of meta tensors.
using ExplainedStep = std::function<void(const DeviceMesh& imagined)>;
std::string explain(const ParallelPlan& plan, const torch::nn::Module& module,
                    const DeviceMesh& mesh, const ExplainedStep& step);

// A DTensor placed so along one axis of its mesh, the others as they are; differentiable, as
// redistribute. For forward functions, at places where propagation should not choose. A plain
// tensor stays as it is, so that the same module runs on plain tensors.
at::Tensor placed(const at::Tensor& tensor, std::string_view axis, const Placement& placement);

}  // namespace tegula
