// Making and checking what a mesh holds.
#include "tegula/mesh/mesh_state.h"

#include <algorithm>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula {

using namespace inner;

namespace {

void check_names(const std::vector<MeshAxis>& axes) {
  std::set<std::string_view> seen;
  for (const MeshAxis& axis : axes) {
    if (!is_identifier(axis.name)) {
      throw UsageError(in_quotes(axis.name) + " cannot name a mesh axis")
          .fact("axes", axes_text(axes))
          .hint("use letters, digits and _, not a digit first: dp, tp, stage_1");
    }
    if (!seen.insert(axis.name).second) {
      throw UsageError("two axes of a mesh cannot both be named " + in_quotes(axis.name))
          .fact("axes", axes_text(axes))
          .hint("give each axis a name of its own");
    }
  }
}

void check_backends(const std::vector<MeshAxis>& axes) {
  for (const MeshAxis& axis : axes) {
    bool fits = axis.backend.name.empty() || is_identifier(axis.backend.name);
    for (const auto& [key, value] : axis.backend.options)
      fits = fits && is_identifier(key) && is_word(value);
    if (fits) continue;
    throw UsageError("axis " + in_quotes(axis.name) +
                     " asks for a backend in words that cannot be read back")
        .fact("backend", in_quotes(axis.backend.name))
        .hint(
            "a backend and its options are names; an option's value is made of letters, digits and "
            "_.:/-");
  }
}

void check_device_type(const std::string& device_type) {
  const bool plain =
      !device_type.empty() && std::all_of(device_type.begin(), device_type.end(),
                                          [](char c) { return c >= 'a' && c <= 'z'; });
  if (plain) return;
  throw UsageError(in_quotes(device_type) + " is no device type")
      .hint(
          "use a plain word such as cpu or cuda; which device of a host a rank takes is not the "
          "mesh's business");
}

bool counts_from_zero(const std::vector<std::int64_t>& ranks) {
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    if (ranks[index] != static_cast<std::int64_t>(index)) return false;
  }
  return true;
}

std::size_t hash_of(const MeshAxis& axis) {
  Hasher hasher;
  hasher.add(axis.name).add(static_cast<std::uint64_t>(axis.size)).add(axis.backend.name);
  for (const auto& [key, value] : axis.backend.options) hasher.add(key).add(value);
  return hasher.result();
}

}  // namespace

std::string inner::axes_text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> texts;
  for (const MeshAxis& axis : axes) texts.push_back(axis.name + "=" + std::to_string(axis.size));
  return "(" + join(texts) + ")";
}

std::vector<std::string> inner::names_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return names;
}

std::int64_t inner::check_sizes(const std::vector<MeshAxis>& axes) {
  if (axes.empty()) {
    throw UsageError("a mesh needs at least one axis").hint("a single rank is a mesh too: dp=1");
  }
  std::int64_t product = 1;
  for (const MeshAxis& axis : axes) {
    if (axis.size < 1) {
      throw UsageError("axis " + in_quotes(axis.name) + " cannot have " +
                       counted(axis.size, "rank", "ranks"))
          .fact("axes", axes_text(axes))
          .hint("sizes are 1 or more");
    }
    if (axis.size > DeviceMesh::kMostRanks / product) {
      throw UsageError("a mesh cannot have more than " + std::to_string(DeviceMesh::kMostRanks) +
                       " ranks")
          .fact("axes", axes_text(axes))
          .hint("check the sizes");
    }
    product *= axis.size;
  }
  return product;
}

std::vector<Layout> inner::row_major_layouts(const std::vector<MeshAxis>& axes) {
  std::vector<Layout> layouts(axes.size());
  std::int64_t stride = 1;
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    layouts[axis] = coalesce(Layout(axes[axis].size, stride));
    stride *= axes[axis].size;
  }
  return layouts;
}

DeviceMesh::Root::Root(std::vector<MeshAxis> the_axes, std::vector<std::int64_t> the_ranks,
                       std::string the_device_type)
    : axes(std::move(the_axes)),
      ranks(std::move(the_ranks)),
      device_type(std::move(the_device_type)) {
  check_device_type(device_type);
  size = check_sizes(axes);
  check_names(axes);
  if (!ranks.empty() && static_cast<std::int64_t>(ranks.size()) != size) {
    throw UsageError("a mesh of " + counted(size, "rank", "ranks") +
                     " cannot be laid over a list of " + std::to_string(ranks.size()))
        .fact("axes", axes_text(axes))
        .hint("list as many ranks as the sizes multiply to");
  }
  if (counts_from_zero(ranks)) ranks.clear();
  index_ranks();
  Hasher hasher;
  hasher.add(device_type).add_all(ranks);
  for (const MeshAxis& axis : axes) hasher.add(hash_of(axis));
  hash = hasher.result();
}

void DeviceMesh::Root::index_ranks() {
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    by_rank.emplace_back(ranks[place], static_cast<std::int64_t>(place));
  }
  std::sort(by_rank.begin(), by_rank.end());
  if (!by_rank.empty() && by_rank.front().first < 0) {
    throw UsageError("a mesh cannot hold rank " + std::to_string(by_rank.front().first))
        .fact("axes", axes_text(axes))
        .hint("ranks are 0 or more");
  }
  const auto twice =
      std::adjacent_find(by_rank.begin(), by_rank.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != by_rank.end()) {
    throw UsageError("rank " + std::to_string(twice->first) + " appears twice in a mesh")
        .fact("axes", axes_text(axes))
        .fact("places",
              std::to_string(twice->second) + " and " + std::to_string((twice + 1)->second))
        .hint("list every rank once");
  }
}

std::optional<std::int64_t> DeviceMesh::Root::place_of(std::int64_t rank) const {
  if (ranks.empty()) return rank >= 0 && rank < size ? std::optional(rank) : std::nullopt;
  const auto found =
      std::lower_bound(by_rank.begin(), by_rank.end(), std::pair(rank, std::int64_t{0}));
  if (found == by_rank.end() || found->first != rank) return std::nullopt;
  return found->second;
}

bool DeviceMesh::Root::operator==(const Root& other) const {
  return hash == other.hash && device_type == other.device_type && axes == other.axes &&
         ranks == other.ranks;
}

Layout DeviceMesh::State::fibers_of(const Root& root, const std::vector<MeshAxis>& axes,
                                    const std::vector<Layout>& layouts) {
  try {
    return complement(tegula::concatenate(layouts), root.size);
  } catch (const UsageError&) {
    std::vector<std::string> steps;
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      steps.push_back(axes[axis].name + "=" + to_string(layouts[axis]));
    }
    throw UsageError("the axes of a mesh overlap or step out of its root")
        .fact("axes", join(steps))
        .fact("root", axes_text(root.axes))
        .hint("steps must count through the " + std::to_string(root.size) +
              " ranks of the root like digits of a number");
  }
}

DeviceMesh::State::State(std::shared_ptr<const Root> the_root, std::vector<MeshAxis> the_axes,
                         std::vector<Layout> the_layouts)
    : root(std::move(the_root)), axes(std::move(the_axes)), layouts(std::move(the_layouts)) {
  check_names(axes);
  check_backends(axes);
  fibers = fibers_of(*root, axes, layouts);
  size = root->size / fibers.size();
  Hasher hasher;
  hasher.add(root->hash);
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    hasher.add(hash_of(axes[axis])).add(std::hash<Layout>()(layouts[axis]));
  }
  hash = hasher.result();
}

const Layout& DeviceMesh::State::layout_of(std::size_t axis) const {
  if (axis < layouts.size()) return layouts[axis];
  throw UsageError("the mesh has no axis with index " + std::to_string(axis))
      .fact("axes", axes_text(axes))
      .hint("axis_index(name) gives the index of an axis");
}

}  // namespace tegula
