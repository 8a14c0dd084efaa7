// Reductions that expanded tensors owe: what is expanded holds each element several times, so one
// copy of each is reduced.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/comm/world.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// Whether a tensor by this spec owes a reduction and has expanded dims that no axis cuts. The same
// on all ranks.
bool can_pay_unexpanded(const DTensorSpec& spec);

// This rank's tile by `to`, dense, from its tile by `from`, of which can_pay_unexpanded is true.
// All ranks of the mesh call it; elements travel once, however often they are repeated.
at::Tensor paid_unexpanded(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                           const DTensorSpec& to);

}  // namespace tegula::inner
