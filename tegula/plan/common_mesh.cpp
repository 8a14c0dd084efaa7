// The idea: a mesh counts its ranks in row-major order, so an axis is a step (its stride) and how
// often it is taken. Where the steps of both meshes together divide one another, they are those of
// a mesh whose axes are parts of both meshes' axes. An axis that is split does on each part what it
// did; an even cut of pieces whose length the ranks divide is one even cut after the other.
#include "tegula/plan/common_mesh.h"

#include <algorithm>
#include <set>
#include <variant>

namespace tegula::inner {
namespace {

using Axes = std::vector<std::size_t>;

// An axis of more than one rank.
struct StridedPart {
  std::int64_t stride;
  MeshAxis axis;
  std::size_t number;  // in its mesh

  bool covers(const StridedPart& part) const {
    return stride <= part.stride && part.stride < stride * axis.size;
  }
};

std::vector<StridedPart> walks(const DeviceMesh& mesh) {
  std::vector<StridedPart> result;
  std::int64_t stride = 1;
  for (std::size_t axis = mesh.ndim(); axis-- > 0;) {
    if (mesh.axes()[axis].size > 1) result.push_back({stride, mesh.axes()[axis], axis});
    stride *= mesh.axes()[axis].size;
  }
  std::reverse(result.begin(), result.end());
  return result;
}

bool lists_the_same_ranks(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.device_type() != b.device_type() || a.size() != b.size() ||
      a.fiber_count() != b.fiber_count()) {
    return false;
  }
  for (std::int64_t fiber = 0; fiber < a.fiber_count(); ++fiber) {
    if (a.ranks(fiber) != b.ranks(fiber)) return false;
  }
  return true;
}

std::string unused(std::string name, const std::set<std::string>& used) {
  while (used.count(name) != 0) name += "_";
  return name;
}

// The parts of which the axes of both are made, slowest first. A part that is an axis keeps its
// name.
std::optional<std::vector<StridedPart>> common_parts(const std::vector<StridedPart>& from,
                                                     const std::vector<StridedPart>& to,
                                                     std::int64_t ranks) {
  std::set<std::int64_t> strides{ranks};
  for (const std::vector<StridedPart>* all : {&from, &to}) {
    for (const StridedPart& walk : *all) strides.insert(walk.stride);
  }
  std::vector<StridedPart> parts;
  std::set<std::string> used;
  std::int64_t above = ranks;
  for (auto stride = std::next(strides.rbegin()); stride != strides.rend(); ++stride) {
    if (above % *stride != 0) return std::nullopt;
    StridedPart part{*stride, {"", above / *stride, {}}, parts.size()};
    const auto covers = [&](const StridedPart& walk) { return walk.covers(part); };
    const StridedPart& source = *std::find_if(from.begin(), from.end(), covers);
    const StridedPart& target = *std::find_if(to.begin(), to.end(), covers);
    if (source.axis.backend != target.axis.backend) return std::nullopt;
    const bool is_source = source.axis.size == part.axis.size;
    const bool is_target = target.axis.size == part.axis.size;
    part.axis.backend = source.axis.backend;
    part.axis.name = unused(is_source   ? source.axis.name
                            : is_target ? target.axis.name
                                        : source.axis.name + "_" + target.axis.name,
                            used);
    used.insert(part.axis.name);
    parts.push_back(part);
    above = *stride;
  }
  if (parts.empty()) return std::nullopt;
  return parts;
}

bool has_these_axes(const DeviceMesh& mesh, const std::vector<StridedPart>& parts) {
  if (mesh.ndim() != parts.size()) return false;
  for (std::size_t axis = 0; axis < parts.size(); ++axis) {
    if (mesh.axes()[axis].size != parts[axis].axis.size) return false;
  }
  return true;
}

DeviceMesh mesh_of(const std::vector<StridedPart>& parts, const DeviceMesh& from,
                   const DeviceMesh& to) {
  if (has_these_axes(from, parts)) return from;
  if (has_these_axes(to, parts)) return to;
  std::vector<MeshAxis> axes;
  std::vector<std::string> names;
  for (const StridedPart& part : parts) {
    axes.push_back(part.axis);
    names.push_back(part.axis.name);
  }
  std::vector<std::int64_t> ranks;
  for (std::int64_t fiber = 0; fiber < from.fiber_count(); ++fiber) {
    const std::vector<std::int64_t> more = from.ranks(fiber);
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
  if (from.fiber_count() > 1) {
    axes.insert(axes.begin(),
                {unused("fiber", {names.begin(), names.end()}), from.fiber_count(), {}});
  }
  return DeviceMesh(axes, ranks, from.device_type()).slice(names);
}

// Whether even cuts, up to and including this axis, leave pieces of one length.
bool divides_evenly(const DimCut& cut, std::size_t axis) {
  std::int64_t ranks = 1;
  for (const CutAxis& cutter : cut.axes()) {
    if (!cutter.cut.is_even()) return false;
    ranks *= cutter.ranks;
    if (cutter.axis == axis) break;
  }
  return cut.size() % ranks == 0;
}

bool can_split(const DTensorSpec& spec, std::size_t axis) {
  const Placement& placement = spec.placements()[axis];
  if (const Shard* shard = as_shard(placement)) {
    return divides_evenly(spec.dim_cuts()[static_cast<std::size_t>(shard->dim())], axis);
  }
  return !std::holds_alternative<MaskPartial>(placement);
}

std::optional<DTensorSpec> on_parts(const DTensorSpec& spec, const std::vector<StridedPart>& parts,
                                    const DeviceMesh& mesh) {
  if (spec.mesh() == mesh) return spec;
  Placements placements(parts.size(), Replicate());
  std::vector<Axes> parts_of(spec.mesh().ndim());
  for (const StridedPart& walk : walks(spec.mesh())) {
    for (const StridedPart& part : parts) {
      if (!walk.covers(part)) continue;
      placements[part.number] = spec.placements()[walk.number];
      parts_of[walk.number].push_back(part.number);
    }
    if (parts_of[walk.number].size() > 1 && !can_split(spec, walk.number)) return std::nullopt;
  }
  ShardOrder order;
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    ShardOrderEntry split{entry.dim, {}};
    for (std::size_t axis : entry.axes) {
      split.axes.insert(split.axes.end(), parts_of[axis].begin(), parts_of[axis].end());
    }
    if (!split.axes.empty()) order.push_back(split);
  }
  return DTensorSpec(mesh, placements, order, spec.meta());
}

}  // namespace

std::optional<SpecPair> on_common_mesh(const DTensorSpec& from, const DTensorSpec& to) {
  if (from.mesh() == to.mesh()) return SpecPair{from, to};
  if (!lists_the_same_ranks(from.mesh(), to.mesh())) return std::nullopt;
  const auto parts = common_parts(walks(from.mesh()), walks(to.mesh()), from.mesh().size());
  if (!parts) return std::nullopt;
  const DeviceMesh mesh = mesh_of(*parts, from.mesh(), to.mesh());
  const std::optional<DTensorSpec> source = on_parts(from, *parts, mesh);
  const std::optional<DTensorSpec> target = on_parts(to, *parts, mesh);
  if (!source || !target) return std::nullopt;
  return SpecPair{*source, *target};
}

}  // namespace tegula::inner
