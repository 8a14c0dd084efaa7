// What the tensors of a call have in common, for ops made of others.
#pragma once

#include "tegula/operators/call.h"

namespace tegula::inner::families {

// Whether some tensor has tiles that are not the whole.
bool is_any_spread(const Call& call);

// Whether this rank is in the mesh, and each DTensor is on it with tiles of its own; the same on
// all ranks of the mesh.
bool has_tiles(const Call& call);

// Whether autograd follows the call: then only ops that it can follow may be used, not tiles.
bool is_followed(const Call& call);

}  // namespace tegula::inner::families
