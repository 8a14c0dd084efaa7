// Two distributions on two meshes, as distributions on one mesh, so that a way between them can be
// planned.
//
//   f32[8] on (x=4) as [S(0)], f32[8] on (a=2, b=2) as [R, S(0)]
//   ->  f32[8] on (a=2, b=2) as [S(0), S(0)], f32[8] on (a=2, b=2) as [R, S(0)]
#pragma once

#include <optional>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

struct SpecPair {
  DTensorSpec from;
  DTensorSpec to;
  bool operator==(const SpecPair&) const = default;
};

// The mesh has the fewest axes of which the axes of both meshes are made, and is one of the two if
// that will do. None if
//   the meshes do not list the same ranks in the same order, fiber by fiber, or differ in device,
//   there are no such axes: for (a=2, b=3) and (a=3, b=2), say, or where both have one rank,
//   an axis that has to be split masks, or cuts pieces in a way that its parts cannot,
//   axes that share a part ask for different backends.
// O(ranks + axes).
// Law: every rank holds the same slice and owes the same reductions as before.
std::optional<SpecPair> on_common_mesh(const DTensorSpec& from, const DTensorSpec& to);

}  // namespace tegula::inner
