// The norm of all gradients, and clipping by it. Gradients may be on different meshes, cut in any
// way, owned by single ranks, or plain: each element counts once.
//
//   loss.backward();
//   clip_grad_norm_(model->parameters(), 1.0);
//   optimizer.step();
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tegula/comm/group.h"

namespace tegula {

struct NormOptions {
  double order = 2;  // any, infinity included
  // Who has gradients; empty: the ranks of the meshes of these parameters. Ranks that hold
  // different parameters (stages of a pipeline, say) name the group that they form together.
  std::optional<Group> among = std::nullopt;
};

// The norm of the gradients of these parameters as one vector, the same number on all ranks; those
// without one do not count, a parameter that is listed twice counts once. Reductions that gradients
// still owe are done first (reduce_gradients). What is replicated, over fibers of a mesh too,
// counts once, and so do plain gradients, which are taken to be the same on all ranks. One
// collective of one number, whatever the meshes; none if all gradients are plain. Called by all
// ranks of the group.
double grad_norm(const std::vector<at::Tensor>& parameters, const NormOptions& options = {});

// Scales all gradients so that their norm is at most `most`, in place; nothing is sent but for the
// norm. Gives the norm as it was. UsageError, before anything is scaled: `most` is negative or NaN.
double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double most,
                       const NormOptions& options = {});

// Brings every element of the gradients into [-most, most], in place. Nothing is sent, but for the
// reductions that they still owe.
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double most);

}  // namespace tegula
