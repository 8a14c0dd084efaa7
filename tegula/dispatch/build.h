// Tensors that libtorch makes from nothing while a BuildDistributed stands (payload/guards.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tegula/operators/call.h"

namespace tegula::inner {

// What a factory's family fills (OperatorNotes::build): this rank's tile, without values yet.
struct BuiltTensor {
  const at::Tensor& tile;
  const DTensorSpec& spec;
  const World& world;
  const std::optional<Coordinate>& at;  // none: outside of the mesh
};

// None if the tensor is to be plain: no BuildDistributed stands, or the op is no such factory, or
// it makes numbers, whole numbers, or a tensor elsewhere.
std::optional<at::Tensor> build_distributed(const Call& call);

// Whether a call that makes a tensor asks for a strided one on the device of our tiles.
bool makes_plain_strided(const Call& call);

}  // namespace tegula::inner
