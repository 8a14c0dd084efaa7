// PyTorch writes an order as split factors: how many pieces later axes had made before this one
// cut. Reading puts the axes where their factors fit; writing multiplies the ranks that came
// before.
#include "tegula/spec/strided_shard.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tegula/base/error.h"
#include "tegula/base/overloaded.h"
#include "tegula/base/text.h"

namespace tegula {

using namespace inner;

namespace {

// One axis that cuts a dim, as PyTorch writes it.
struct TorchCut {
  std::size_t axis;
  std::int64_t ranks;
  std::int64_t split_factor;
};

// Builds the order from the last axis to the first: an axis cuts after as many of the later ones as
// multiply to its split factor. None if some factor fits nowhere.
std::optional<std::vector<std::size_t>> decode_order(const std::vector<TorchCut>& cuts) {
  std::vector<TorchCut> order;
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    std::int64_t product = 1;
    auto place = order.begin();
    while (product != cut->split_factor && place != order.end()) product *= (place++)->ranks;
    if (product != cut->split_factor) return std::nullopt;
    order.insert(place, *cut);
  }
  std::vector<std::size_t> axes;
  for (const TorchCut& cut : order) axes.push_back(cut.axis);
  return axes;
}

std::map<std::int64_t, std::vector<TorchCut>> cuts_by_dim(const DeviceMesh& mesh,
                                                          const TorchPlacements& placements,
                                                          std::int64_t ndim) {
  std::map<std::int64_t, std::vector<TorchCut>> result;
  for (std::size_t axis = 0; axis < placements.size() && axis < mesh.ndim(); ++axis) {
    const auto add = [&](std::int64_t dim, std::int64_t factor) {
      result[dim < 0 ? dim + ndim : dim].push_back({axis, mesh.axes()[axis].size, factor});
    };
    std::visit(Overloaded{
                   [&](const StridedShard& strided) { add(strided.dim, strided.split_factor); },
                   [&](const Placement& placement) {
                     if (const Shard* shard = as_shard(placement)) add(shard->dim(), 1);
                   },
               },
               placements[axis]);
  }
  return result;
}

void check_split_factors(const TorchPlacements& placements) {
  for (const TorchPlacement& placement : placements) {
    const auto* strided = std::get_if<StridedShard>(&placement);
    if (strided == nullptr || strided->split_factor >= 1) continue;
    throw UsageError("a strided shard cannot have split factor " +
                     std::to_string(strided->split_factor))
        .fact("as", to_string(placements))
        .hint("split factors are 1 or more");
  }
}

UsageError no_words(const DTensorSpec& spec, const std::string& why) {
  return UsageError("PyTorch's placements cannot express this spec: " + why)
      .fact("spec", to_string(spec))
      .hint("redistribute to even shards first");
}

// The split factor of an axis in an order: the pieces made by later axes that cut before it.
std::int64_t split_factor(const std::vector<CutAxis>& axes, std::size_t place) {
  std::int64_t factor = 1;
  for (std::size_t earlier = 0; earlier < place; ++earlier) {
    if (axes[earlier].axis > axes[place].axis) factor *= axes[earlier].ranks;
  }
  return factor;
}

bool in_mesh_order(const std::vector<CutAxis>& axes) {
  return std::is_sorted(axes.begin(), axes.end(),
                        [](const CutAxis& a, const CutAxis& b) { return a.axis < b.axis; });
}

bool in_blocks(const std::vector<CutAxis>& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [](const CutAxis& axis) { return !axis.cut.is_even(); });
}

void write_dim(const DTensorSpec& spec, std::int64_t dim, TorchPlacements& result) {
  const std::vector<CutAxis>& axes = spec.dim_cuts()[static_cast<std::size_t>(dim)].axes();
  if (in_blocks(axes) && !in_mesh_order(axes))
    throw no_words(spec, "it has both blocks and a shard order");
  for (std::size_t place = 0; place < axes.size(); ++place) {
    const Cut& cut = axes[place].cut;
    if (!cut.sizes().empty()) throw no_words(spec, "it has shards of given sizes");
    if (cut.blocks().size() > 1) throw no_words(spec, "its blocks differ from piece to piece");
    const std::int64_t factor = cut.is_even() ? split_factor(axes, place) : cut.blocks_of(0);
    if (factor == 1) {
      result[axes[place].axis] = Placement(Shard(dim));
    } else {
      result[axes[place].axis] = StridedShard{dim, factor};
    }
  }
}

bool same_slices(const DTensorSpec& a, const DTensorSpec& b, std::int64_t dim) {
  const DimCut& cut = a.dim_cuts()[static_cast<std::size_t>(dim)];
  Coordinate at(a.mesh().ndim(), 0);
  for (std::int64_t shard = 0; shard < cut.shard_count(); ++shard) {
    const std::vector<std::int64_t> position = cut.position_of(shard);
    for (std::size_t i = 0; i < position.size(); ++i) at[cut.axes()[i].axis] = position[i];
    if (cut.intervals(at) != b.dim_cuts()[static_cast<std::size_t>(dim)].intervals(at))
      return false;
  }
  return true;
}

}  // namespace

DTensorSpec from_torch_placements(const DeviceMesh& mesh, const TorchPlacements& placements,
                                  const TensorMeta& meta) {
  check_split_factors(placements);
  Placements plain;
  for (const TorchPlacement& placement : placements) {
    plain.push_back(
        std::visit(Overloaded{
                       [](const StridedShard& strided) -> Placement { return Shard(strided.dim); },
                       [](const Placement& one) { return one; },
                   },
                   placement));
  }
  ShardOrder order;
  for (const auto& [dim, cuts] : cuts_by_dim(mesh, placements, meta.ndim())) {
    order.push_back({dim, {}});
    if (std::optional<std::vector<std::size_t>> axes = decode_order(cuts)) {
      order.back().axes = std::move(*axes);
      continue;
    }
    for (const TorchCut& cut : cuts) {
      order.back().axes.push_back(cut.axis);
      if (cut.split_factor == 1) continue;
      const std::int64_t written_dim = as_shard(plain[cut.axis])->dim();
      plain[cut.axis] = Shard(written_dim, Cut::in_blocks(cut.split_factor));
    }
  }
  // A mistake in the number of placements or in a dim is reported by the spec, in its words.
  const bool fits = plain.size() == mesh.ndim() &&
                    std::all_of(order.begin(), order.end(), [&](const ShardOrderEntry& entry) {
                      return entry.dim >= 0 && entry.dim < meta.ndim();
                    });
  if (!fits) return {mesh, plain, meta};
  return {mesh, plain, order, meta};
}

TorchPlacements to_torch_placements(const DTensorSpec& spec) {
  TorchPlacements result(spec.placements().begin(), spec.placements().end());
  for (const ShardOrderEntry& entry : spec.shard_order()) write_dim(spec, entry.dim, result);
  const DTensorSpec back = from_torch_placements(spec.mesh(), result, spec.meta());
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    const bool reads_back =
        back == spec || !in_blocks(spec.dim_cuts()[static_cast<std::size_t>(entry.dim)].axes()) ||
        same_slices(spec, back, entry.dim);
    if (!reads_back) throw no_words(spec, "its blocks would be read as a shard order");
  }
  return result;
}

std::string to_string(const TorchPlacements& placements) {
  std::vector<std::string> texts;
  for (const TorchPlacement& placement : placements) {
    texts.push_back(std::visit(Overloaded{
                                   [](const StridedShard& strided) {
                                     return "_S(" + std::to_string(strided.dim) + ", " +
                                            std::to_string(strided.split_factor) + ")";
                                   },
                                   [](const Placement& one) { return to_string(one); },
                               },
                               placement));
  }
  return "[" + join(texts) + "]";
}

TorchPlacement parse_torch_placement(Scanner& scan) {
  if (!scan.accept_word("_S")) return parse_placement(scan);
  StridedShard strided;
  scan.expect("(");
  strided.dim = scan.integer();
  scan.expect(",");
  strided.split_factor = scan.integer();
  scan.expect(")");
  return strided;
}

TorchPlacements parse_torch_placements(std::string_view text) {
  Scanner scan(text, "PyTorch placements", "[_S(0, 2), S(0)]");
  TorchPlacements placements;
  scan.expect("[");
  scan.list_until("]", [&] { placements.push_back(parse_torch_placement(scan)); });
  scan.expect_end();
  return placements;
}

}  // namespace tegula
