// Random programs: the same steps on plain tensors and on DTensors give the same values.
//
// A seed decides everything: two to four leaves of uneven shapes, their placements, 10 to 20 steps
// among those that the shapes at hand allow, and how the gradients are asked for. Every rank draws
// the same program, because what a step needs to know (shapes, whether values are apart) is read
// off the plain tensors, which every rank computes.
//
// Refusals that the generator avoids by name:
//   - an op on tensors of two meshes of which neither covers the other
//
// What libtorch itself refuses on plain tensors is avoided too: a write to what autograd has saved,
// to one of several views of one op, to an expanded tensor, to a leaf.
#pragma once

#include <cstdint>

#include "tegula/comm/world.h"

namespace tegula::test {

// All ranks of the mesh call it; on a slice of a mesh those of a fiber, and another fiber may run
// another program. Throws std::runtime_error with the seed and the program up to the
// step that failed: a result of another shape, dtype or value (float64: 1e-9 of the largest), an
// error, a gradient that is wrong or is not placed as its leaf.
void run_random_program(const DeviceMesh& mesh, std::uint64_t seed);

}  // namespace tegula::test
