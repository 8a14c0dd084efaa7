// The idea: a 64-bit hash of each tile's bytes travels along each axis over which the tile is
// replicated. Cost: one small all-gather per operand and axis, and reading the tile once.
#include "tegula/dispatch/paranoia.h"

#include <ATen/ATen.h>

#include <cstdlib>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"
#include "tegula/dispatch/local_call.h"

namespace tegula {
namespace {

// Per rank, so that ranks which run as threads count for themselves.
struct Sampling {
  Sampling() {
    if (const char* text = std::getenv("TEGULA_CHECK")) share = std::atof(text);
  }
  // Spreads the checked ops evenly.
  bool is_due() {
    if (share <= 0) return false;
    debt += share;
    if (debt < 1) return false;
    debt -= 1;
    return true;
  }
  double share = 0;
  double debt = 0;
};

std::int64_t hash_of_bytes(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.resolve_conj().resolve_neg().contiguous();
  const std::string_view bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  return static_cast<std::int64_t>(std::hash<std::string_view>()(bytes));
}

void compare_along(const Call& call, const at::Tensor& tile, const std::string& what,
                   const DeviceMesh& mesh, std::size_t axis) {
  const std::string& name = mesh.axes()[axis].name;
  if (mesh.axes()[axis].size == 1) return;
  const Group group = call.world().group(mesh, name);
  const at::Tensor hashes =
      group.all_gather(at::full({1}, hash_of_bytes(tile), at::TensorOptions(at::kLong)), 0);
  std::vector<std::int64_t> differing;
  for (int member = 1; member < group.size(); ++member) {
    if (hashes[member].item<std::int64_t>() != hashes[0].item<std::int64_t>()) {
      differing.push_back(group.ranks()[static_cast<std::size_t>(member)]);
    }
  }
  if (differing.empty()) return;
  throw UsageError("ranks hold different values of what should be the same on all of them")
      .fact("op", call.text())
      .fact("tensor", what)
      .fact("axis", name)
      .fact("ranks", bracketed(differing) + " differ from rank " + std::to_string(group.ranks()[0]))
      .hint("look for a rank that draws its own random numbers or reads other data");
}

}  // namespace

void check_replicas(const Call& call) {
  if (!call.world().part<Sampling>().is_due()) return;
  if (!call.mesh().coordinate_of(call.world().rank())) return;
  const BelowAutograd below;
  for (const TensorPlace& place : call.tensors()) {
    if (!place.tensor.defined()) continue;
    // what is written may hold nothing yet; if it does, its next reader is checked
    if (call.facts().written[place.argument]) continue;
    if (!place.payload) {
      for (std::size_t axis = 0; axis < call.mesh().ndim(); ++axis) {
        compare_along(call, place.tensor, described(place.tensor), call.mesh(), axis);
      }
      continue;
    }
    const DTensorSpec& spec = place.payload->spec();
    if (place.payload->link()) continue;
    for (std::size_t axis = 0; axis < spec.mesh().ndim(); ++axis) {
      if (!is_replicate(spec.placements()[axis])) continue;
      compare_along(call, place.payload->tile(), to_string(spec), spec.mesh(), axis);
    }
  }
}

}  // namespace tegula
