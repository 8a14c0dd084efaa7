#include "tests/plan/exhaustive.h"

#include <algorithm>
#include <optional>

#include "tegula/base/error.h"
#include "tegula/plan/plan.h"
#include "tegula/plan/tile_step.h"
#include "tests/spec/generated.h"

namespace tegula {

using namespace inner;

namespace {

// Adds the specs with these placements, in every shard order.
void add_orders(const DeviceMesh& mesh, const Placements& placements, const TensorMeta& meta,
                std::map<std::uint64_t, DTensorSpec>& specs) {
  std::vector<ShardOrder> orders{default_shard_order(placements)};
  for (std::size_t entry = 0; entry < orders.front().size(); ++entry) {
    std::vector<ShardOrder> more;
    for (ShardOrder order : orders) {
      std::vector<std::size_t>& axes = order[entry].axes;
      std::sort(axes.begin(), axes.end());
      do {
        more.push_back(order);
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
    orders = std::move(more);
  }
  for (const ShardOrder& order : orders) {
    try {
      const DTensorSpec spec(mesh, placements, order, meta);
      specs.emplace(spec.id(), spec);
    } catch (const UsageError&) {  // a cut that fits another order, reductions that do not commute
    }
  }
}

std::vector<DTensorSpec> all_of(const DeviceMesh& mesh, const TensorMeta& meta,
                                const std::vector<Placements>& choices) {
  std::vector<std::int64_t> counts;
  for (const Placements& of_axis : choices) {
    counts.push_back(static_cast<std::int64_t>(of_axis.size()));
  }
  std::map<std::uint64_t, DTensorSpec> specs;
  for (const Coordinate& choice : all_coordinates(counts)) {
    Placements placements;
    for (std::size_t axis = 0; axis < choices.size(); ++axis) {
      placements.push_back(choices[axis][static_cast<std::size_t>(choice[axis])]);
    }
    add_orders(mesh, placements, meta, specs);
  }
  std::vector<DTensorSpec> result;
  for (const auto& [id, spec] : specs) result.push_back(spec);
  return result;
}

Placements plain_choices(const TensorMeta& meta) {
  Placements choices{Replicate()};
  for (std::int64_t dim = 0; dim < meta.ndim(); ++dim) choices.emplace_back(Shard(dim));
  return choices;
}

// None if there is no such step. Steps that send nothing are taken one axis at a time.
std::optional<std::int64_t> time_between(const DTensorSpec& a, const DTensorSpec& b,
                                         const CostModel& model) {
  try {
    step_at(a, b, Coordinate(a.mesh().ndim(), 0));
    const Step step = step_between(a, b, model);
    if (!communicates(step.kind) && step.axes.size() > 1) return std::nullopt;
    return step.picoseconds;
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

// The axes of more than one rank that cut a dim, up to the last that does not cut it evenly.
std::vector<CutAxis> special_part(const DimCut& cut) {
  std::vector<CutAxis> axes = cut.axes();
  std::erase_if(axes, [](const CutAxis& axis) { return axis.ranks == 1; });
  while (!axes.empty() && axes.back().cut.is_even()) axes.pop_back();
  return axes;
}

bool begins_with(const DimCut& cut, const std::vector<CutAxis>& first) {
  std::vector<CutAxis> axes = cut.axes();
  std::erase_if(axes, [](const CutAxis& axis) { return axis.ranks == 1; });
  return axes.size() >= first.size() && std::equal(first.begin(), first.end(), axes.begin());
}

bool cuts_like(const DTensorSpec& spec, const DTensorSpec& from, const DTensorSpec& to) {
  for (std::size_t dim = 0; dim < spec.dim_cuts().size(); ++dim) {
    const std::vector<CutAxis> special = special_part(spec.dim_cuts()[dim]);
    if (!begins_with(from.dim_cuts()[dim], special) && !begins_with(to.dim_cuts()[dim], special)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<DTensorSpec> plain_specs(const DeviceMesh& mesh, const TensorMeta& meta) {
  return all_of(mesh, meta, std::vector<Placements>(mesh.ndim(), plain_choices(meta)));
}

std::map<std::uint64_t, std::int64_t> least_times(const std::vector<DTensorSpec>& specs,
                                                  const DTensorSpec& from, const CostModel& model) {
  struct Edge {
    std::uint64_t from, to;
    std::int64_t time;
  };
  std::vector<Edge> edges;
  for (const DTensorSpec& a : specs) {
    for (const DTensorSpec& b : specs) {
      if (a == b) continue;
      if (const auto time = time_between(a, b, model)) edges.push_back({a.id(), b.id(), *time});
    }
  }
  std::map<std::uint64_t, std::int64_t> times{{from.id(), 0}};
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const Edge& edge : edges) {
      const auto start = times.find(edge.from);
      if (start == times.end()) continue;
      const auto [end, is_new] = times.emplace(edge.to, start->second + edge.time);
      if (!is_new && end->second <= start->second + edge.time) continue;
      end->second = start->second + edge.time;
      is_changed = true;
    }
  }
  return times;
}

std::int64_t least_time(const DTensorSpec& from, const DTensorSpec& to, const CostModel& model) {
  std::vector<Placements> choices;
  for (std::size_t axis = 0; axis < from.mesh().ndim(); ++axis) {
    Placements of_axis = plain_choices(from.meta());
    for (const DTensorSpec* end : {&from, &to}) {
      const Placement& placement = end->placements()[axis];
      if (std::find(of_axis.begin(), of_axis.end(), placement) == of_axis.end()) {
        of_axis.push_back(placement);
      }
    }
    choices.push_back(std::move(of_axis));
  }
  std::vector<DTensorSpec> specs = all_of(from.mesh(), from.meta(), choices);
  std::erase_if(specs, [&](const DTensorSpec& spec) { return !cuts_like(spec, from, to); });
  return least_times(specs, from, model).at(to.id());
}

}  // namespace tegula
