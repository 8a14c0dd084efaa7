// Operators over lists, for families that know more about one of them.
#pragma once

#include "tegula/operators/operator_notes.h"

namespace tegula::inner::families {

// Where members are on different meshes: the op for those of one mesh at a time. Null if all are on
// one.
Recipe one_mesh_at_a_time(const Call& call);

}  // namespace tegula::inner::families
