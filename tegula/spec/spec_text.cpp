// Printing and reading of specs; dtensor_spec.h shows the form.
#include <algorithm>
#include <map>
#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/spec/dtensor_spec.h"
#include "tegula/spec/strided_shard.h"

namespace tegula {
namespace {

constexpr std::string_view kForm = "f32[8, 16] on (dp=2, tp=4) as [R, S(0)]";

// What stands behind a placement, "[1]" for the second axis to cut its dim: nothing if the dim is
// cut in the order of the mesh.
std::string place_text(const DTensorSpec& spec, std::size_t axis) {
  const Shard* shard = as_shard(spec.placements()[axis]);
  if (shard == nullptr) return "";
  const std::vector<CutAxis>& axes = spec.dim_cuts()[static_cast<std::size_t>(shard->dim())].axes();
  const auto by_axis = [](const CutAxis& a, const CutAxis& b) { return a.axis < b.axis; };
  if (std::is_sorted(axes.begin(), axes.end(), by_axis)) return "";
  std::size_t place = 0;
  while (axes[place].axis != axis) ++place;
  return "[" + std::to_string(place) + "]";
}

// Placements as written, each with its place in the order of its dim if one is given.
struct WrittenPlacements {
  TorchPlacements placements;
  std::vector<std::optional<std::int64_t>> places;

  bool has_places() const {
    return std::any_of(places.begin(), places.end(),
                       [](const auto& place) { return place.has_value(); });
  }
};

WrittenPlacements read_placements(Scanner& scan) {
  WrittenPlacements written;
  scan.expect("[");
  scan.list_until("]", [&] {
    written.placements.push_back(parse_torch_placement(scan));
    written.places.emplace_back();
    if (!scan.accept("[")) return;
    written.places.back() = scan.integer();
    scan.expect("]");
  });
  return written;
}

// What is numbered must be a plain shard: a strided one says its place by itself.
Placements plain_placements(const WrittenPlacements& written) {
  Placements placements;
  for (std::size_t axis = 0; axis < written.placements.size(); ++axis) {
    const auto* placement = std::get_if<Placement>(&written.placements[axis]);
    if (placement == nullptr || (written.places[axis] && as_shard(*placement) == nullptr)) {
      throw UsageError("only plain shards can be numbered in the order in which they cut")
          .fact("as", to_string(written.placements))
          .hint("write [S(0)[1], S(0)[0]]");
    }
    placements.push_back(*placement);
  }
  return placements;
}

// Places must be given for all axes that cut a dim or for none, and count 0, 1, 2, ...
ShardOrder order_of(const Placements& placements,
                    const std::vector<std::optional<std::int64_t>>& places, std::int64_t ndim) {
  std::map<std::int64_t, std::map<std::int64_t, std::size_t>> axis_at;
  std::map<std::int64_t, std::size_t> cuts;
  std::map<std::int64_t, std::size_t> numbered;
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    const Shard* shard = as_shard(placements[axis]);
    if (shard == nullptr) continue;
    const std::int64_t dim = shard->dim() < 0 ? shard->dim() + ndim : shard->dim();
    const auto next = static_cast<std::int64_t>(cuts[dim]++);
    axis_at[dim].emplace(places[axis].value_or(next), axis);
    if (places[axis]) ++numbered[dim];
  }
  ShardOrder order;
  for (const auto& [dim, axes] : axis_at) {
    const bool all_or_none = numbered[dim] == 0 || numbered[dim] == cuts[dim];
    if (!all_or_none || axes.size() != cuts[dim] || axes.begin()->first != 0 ||
        axes.rbegin()->first != static_cast<std::int64_t>(axes.size()) - 1) {
      throw UsageError("the order in which axes cut dim " + std::to_string(dim) +
                       " is not 0, 1, 2, ...")
          .fact("as", to_string(placements))
          .hint("number all axes that cut the dim, or none: [S(0)[1], S(0)[0]]");
    }
    order.push_back({dim, {}});
    for (const auto& [place, axis] : axes) order.back().axes.push_back(axis);
  }
  return order;
}

}  // namespace

std::string to_string(const DTensorSpec& spec) {
  std::vector<std::string> texts;
  for (std::size_t axis = 0; axis < spec.placements().size(); ++axis) {
    texts.push_back(to_string(spec.placements()[axis]) + place_text(spec, axis));
  }
  return to_string(spec.meta()) + " on " + to_string(spec.mesh()) + " as [" + join(texts) + "]";
}

std::ostream& operator<<(std::ostream& out, const DTensorSpec& spec) {
  return out << to_string(spec);
}

DTensorSpec parse_spec(std::string_view text) {
  Scanner scan(text, "a spec", kForm);
  const TensorMeta meta = parse_tensor_meta(scan);
  scan.expect_word("on");
  const DeviceMesh mesh = parse_mesh(scan);
  scan.expect_word("as");
  const WrittenPlacements written = read_placements(scan);
  scan.expect_end();
  if (!written.has_places()) return from_torch_placements(mesh, written.placements, meta);
  return {mesh, plain_placements(written),
          order_of(plain_placements(written), written.places, meta.ndim()), meta};
}

}  // namespace tegula
