// Ways to distribute a tensor, and tiles to start from that every rank can make for all ranks.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// Every spec that these can make on the mesh, one per axis and with both orders where two axes cut
// a dim: R, S(0), S(1), S(0) in given sizes, S(0) in blocks, P(sum), P(max), P(avg), M(9).
// What the tensor has no dims for, and reductions that do not commute, are left out.
std::vector<DTensorSpec> all_specs(const DeviceMesh& mesh, const TensorMeta& meta);

std::string specs_text(const DTensorSpec& from, const DTensorSpec& to);

// The tiles of all ranks of a fiber, in row-major order of their coordinates: small whole numbers
// that differ along axes that owe a reduction and whose averages over 2, 3 and 4 are exact.
std::vector<at::Tensor> tiles_of(const DTensorSpec& spec, std::int64_t seed);

// Fills the tensor with such numbers.
at::Tensor numbers(const Shape& shape, at::ScalarType dtype, std::int64_t seed);

// The place of a rank among tiles_of.
std::size_t place_of(const DeviceMesh& mesh, std::int64_t rank);

// Whether every tile is what the definition says it is if the whole tensor is this one. Adds a
// failure to the running test if not.
void expect_tiles(const std::vector<at::Tensor>& tiles, const at::Tensor& whole,
                  const DTensorSpec& spec, const std::string& text);

}  // namespace tegula
