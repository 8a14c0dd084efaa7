// Meshes, and who has which place in them.
#include <set>

#include "fuzz/target.h"
#include "tegula/mesh/device_mesh.h"

using namespace tegula;
using namespace tegula::fuzz;

namespace {

constexpr std::int64_t kMostRanks = 64;

// Laws: places and ranks belong together; every rank of the root lies in one fiber.
void check_places(const DeviceMesh& mesh) {
  std::set<std::int64_t> seen;
  for (std::int64_t fiber = 0; fiber < mesh.fiber_count(); ++fiber) {
    for (const std::int64_t rank : mesh.ranks(fiber)) {
      require(seen.insert(rank).second, "a rank has one place", mesh);
      const std::optional<Coordinate> place = mesh.coordinate_of(rank);
      require(place && mesh.fiber_of(rank) == fiber && mesh.rank_at(*place, fiber) == rank,
              "places and ranks belong together", mesh);
    }
  }
  require(static_cast<std::int64_t>(seen.size()) == mesh.root().size(), "the fibers hold all ranks",
          mesh);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto mesh =
      value_of(text_of(data, size), [](std::string_view text) { return parse_mesh(text); });
  if (mesh && mesh->root().size() <= kMostRanks) check_places(*mesh);
  return 0;
}
