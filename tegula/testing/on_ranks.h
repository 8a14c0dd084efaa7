// A sample's call on ranks that really are there (threads), against the same call on plain tensors.
#pragma once

#include <string>
#include <vector>

#include "tegula/mesh/device_mesh.h"
#include "tegula/testing/sample.h"

namespace tegula::inner {

// What differs, one text per fault that names the sample, the mesh and the operands' placements:
// results, what is written, and the gradients of operands if the op has one. Each operand is cut in
// turn along each of its dims, evenly and unequally, by each axis and by all of them; then all
// operands at random. What an op throws on plain tensors, it may throw here.
std::vector<std::string> faults_on_ranks(const Sample& sample, const std::vector<MeshAxis>& axes);

}  // namespace tegula::inner
