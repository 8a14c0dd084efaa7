// Specs, and what the ranks hold of them.
#include <algorithm>

#include "fuzz/target.h"
#include "tegula/spec/slices.h"
#include "tegula/spec/strided_shard.h"

using namespace tegula;
using namespace tegula::fuzz;

namespace {

constexpr std::int64_t kMostRanks = 16;
constexpr std::int64_t kMostElements = 1 << 10;

std::int64_t count_of(const std::vector<Interval>& intervals) {
  std::int64_t count = 0;
  for (const Interval& one : intervals) count += one.size;
  return count;
}

// Law: a rank's slice has the shape of its tile.
void check_slices(const DTensorSpec& spec) {
  for (std::int64_t index = 0; index < spec.mesh().size(); ++index) {
    const Coordinate place = spec.mesh().coordinate_at(index);
    const TensorSlice slice = slice_at(spec, place);
    Shape shape;
    for (const std::vector<Interval>& intervals : slice) shape.push_back(count_of(intervals));
    require(shape == local_shape(spec, place), "slice and tile agree", spec);
  }
}

// Law: what PyTorch's notation can say cuts the tensor into the same slices.
void check_torch_placements(const DTensorSpec& spec) {
  std::optional<TorchPlacements> placements;
  try {
    placements = to_torch_placements(spec);
  } catch (const UsageError&) {
    return;
  }
  const DTensorSpec back = from_torch_placements(spec.mesh(), *placements, spec.meta());
  for (std::int64_t index = 0; index < spec.mesh().size(); ++index) {
    const Coordinate place = spec.mesh().coordinate_at(index);
    require(slice_at(back, place) == slice_at(spec, place), "PyTorch's notation means the same",
            spec);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  if (text.find("on") == std::string_view::npos) {
    value_of(text, [](std::string_view one) { return parse_tensor_meta(one); });
    return 0;
  }
  const auto spec = value_of(text, [](std::string_view one) { return parse_spec(one); });
  const bool is_small =
      spec && spec->mesh().size() <= kMostRanks &&
      std::ranges::all_of(spec->shape(), [](std::int64_t n) { return n <= kMostElements; });
  if (is_small) {
    check_slices(*spec);
    check_torch_placements(*spec);
  }
  return 0;
}
