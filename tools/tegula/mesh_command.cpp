#include <algorithm>
#include <ostream>

#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/mesh/device_mesh.h"
#include "tools/tegula/commands.h"

namespace tegula::cli {
namespace {

constexpr std::int64_t kUsualRanks = 64;
constexpr std::size_t kUsualGroups = 8;

std::string ranks_line(const std::vector<std::int64_t>& ranks, bool all) {
  const std::size_t shown = all ? ranks.size() : std::min<std::size_t>(ranks.size(), kUsualRanks);
  std::string line;
  for (std::size_t i = 0; i < shown; ++i) line += (i == 0 ? "" : " ") + std::to_string(ranks[i]);
  if (shown < ranks.size()) line += " ... and " + std::to_string(ranks.size() - shown) + " more";
  return line;
}

// The ranks as a grid: one row per coordinate of all axes but the last.
void print_grid(const DeviceMesh& mesh, std::int64_t fiber, std::ostream& out) {
  const MeshAxis& last = mesh.axes().back();
  std::vector<std::string> head;
  for (std::size_t axis = 0; axis + 1 < mesh.ndim(); ++axis) head.push_back(mesh.axes()[axis].name);
  for (std::int64_t i = 0; i < last.size; ++i) head.push_back(last.name + "=" + std::to_string(i));
  Table table(head);
  const std::vector<std::int64_t> ranks = mesh.ranks(fiber);
  for (std::size_t begin = 0; begin < ranks.size(); begin += static_cast<std::size_t>(last.size)) {
    std::vector<std::string> row;
    const Coordinate coordinate = *mesh.coordinate_of(ranks[begin]);
    for (std::size_t axis = 0; axis + 1 < mesh.ndim(); ++axis)
      row.push_back(std::to_string(coordinate[axis]));
    for (std::int64_t i = 0; i < last.size; ++i) {
      row.push_back(std::to_string(ranks[begin + static_cast<std::size_t>(i)]));
    }
    table.add(std::move(row));
  }
  table.print(out);
}

void print_groups(const DeviceMesh& mesh, std::size_t axis, bool all, std::ostream& out) {
  const std::vector<std::vector<std::int64_t>> groups = mesh.groups(axis);
  out << "\ngroups along " << mesh.axes()[axis].name << ": "
      << counted(static_cast<std::int64_t>(groups.size()), "group", "groups") << " of "
      << counted(mesh.axes()[axis].size, "rank", "ranks") << '\n';
  const std::size_t shown = all ? groups.size() : std::min(groups.size(), kUsualGroups);
  for (std::size_t group = 0; group < shown; ++group)
    out << "  " << ranks_line(groups[group], all) << '\n';
  if (shown < groups.size())
    out << "  ... and " << groups.size() - shown << " more (--all lists them)\n";
}

}  // namespace

int show_mesh(const MeshCall& call, std::ostream& out) {
  const DeviceMesh mesh = parse_mesh(call.text);
  out << "mesh    " << mesh << '\n';
  out << "ranks   " << mesh.size() << " on " << mesh.device_type();
  if (mesh.fiber_count() > 1) {
    out << ", in each of " << mesh.fiber_count() << " fibers of a root with " << mesh.root().size();
  }
  out << '\n';
  if (mesh.size() <= kUsualRanks || call.all) {
    const std::int64_t fibers =
        call.all ? mesh.fiber_count() : std::min<std::int64_t>(mesh.fiber_count(), 2);
    for (std::int64_t fiber = 0; fiber < fibers; ++fiber) {
      out << '\n';
      if (mesh.fiber_count() > 1) out << "fiber " << fiber << '\n';
      print_grid(mesh, fiber, out);
    }
    if (fibers < mesh.fiber_count())
      out << "\n... and " << mesh.fiber_count() - fibers << " fibers more (--all lists them)\n";
  }
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) print_groups(mesh, axis, call.all, out);
  return 0;
}

}  // namespace tegula::cli
