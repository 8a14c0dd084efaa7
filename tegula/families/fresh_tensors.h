// New tensors that are placed as another is, for the families that make them.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/operators/call.h"

namespace tegula::inner::families {

// Whether a tile holds the tensor's values: no view without data of its own, and nothing owed.
inline bool holds_values(const Payload& self) { return !self.link() && !self.spec().is_partial(); }

// Whether self, the first argument, is a DTensor, and what is asked for lies where our tiles do.
bool makes_tensor_like_self(const Call& call);

// The whole on the meta device.
at::Tensor without_data(const at::Tensor& outer);

// What the op makes of the whole self, without data: libtorch's own answer, without gaps.
TensorMeta whole_result(const Call& call);

// Of a new tensor like self: dims of self's size are cut as in self, if there are as many dims, and
// others are whole. Reductions that self owes are not owed by a fresh tensor.
DTensorSpec spec_like_self(const Call& call);

// This rank's tile of undefined values; on a rank outside of the mesh, none.
at::Tensor fresh_tile(const DTensorSpec& spec, const World& world);

}  // namespace tegula::inner::families
