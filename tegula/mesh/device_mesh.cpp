// The idea: a root lists its ranks once, and every mesh over it maps coordinates to places in that
// list. Each axis is a layout (size:stride, or several steps if it was flattened from several
// axes), and so is what the axes leave out, the fibers. The steps of axes and fibers together count
// through the list like the digits of a number, so that rank -> coordinate reads off digits.
#include "tegula/mesh/device_mesh.h"

#include <algorithm>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"
#include "tegula/mesh/mesh_state.h"

namespace tegula {
namespace {

std::string axes_text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> texts;
  for (const MeshAxis& axis : axes) texts.push_back(axis.name + "=" + std::to_string(axis.size));
  return "(" + join(texts) + ")";
}

void check_names(const std::vector<MeshAxis>& axes) {
  std::set<std::string_view> seen;
  for (const MeshAxis& axis : axes) {
    if (!is_identifier(axis.name)) {
      throw UsageError(quoted(axis.name) + " cannot name a mesh axis")
          .fact("axes", axes_text(axes))
          .hint("use letters, digits and _, not a digit first: dp, tp, stage_1");
    }
    if (!seen.insert(axis.name).second) {
      throw UsageError("two axes of a mesh cannot both be named " + quoted(axis.name))
          .fact("axes", axes_text(axes))
          .hint("give each axis a name of its own");
    }
  }
}

// Returns the product of the sizes.
std::int64_t check_sizes(const std::vector<MeshAxis>& axes) {
  if (axes.empty()) {
    throw UsageError("a mesh needs at least one axis").hint("a single rank is a mesh too: dp=1");
  }
  std::int64_t product = 1;
  for (const MeshAxis& axis : axes) {
    if (axis.size < 1) {
      throw UsageError("axis " + quoted(axis.name) + " cannot have " + counted(axis.size, "rank", "ranks"))
          .fact("axes", axes_text(axes))
          .hint("sizes are 1 or more");
    }
    if (axis.size > DeviceMesh::kMostRanks / product) {
      throw UsageError("a mesh cannot have more than " + std::to_string(DeviceMesh::kMostRanks) + " ranks")
          .fact("axes", axes_text(axes))
          .hint("check the sizes");
    }
    product *= axis.size;
  }
  return product;
}

void check_backends(const std::vector<MeshAxis>& axes) {
  for (const MeshAxis& axis : axes) {
    bool fits = axis.backend.name.empty() || is_identifier(axis.backend.name);
    for (const auto& [key, value] : axis.backend.options) fits = fits && is_identifier(key) && is_word(value);
    if (fits) continue;
    throw UsageError("axis " + quoted(axis.name) + " asks for a backend in words that cannot be read back")
        .fact("backend", quoted(axis.backend.name))
        .hint("a backend and its options are names; an option's value is made of letters, digits and _.:/-");
  }
}

void check_device_type(const std::string& device_type) {
  const bool plain = !device_type.empty() && std::all_of(device_type.begin(), device_type.end(), [](char c) {
    return c >= 'a' && c <= 'z';
  });
  if (plain) return;
  throw UsageError(quoted(device_type) + " is no device type")
      .hint("use a plain word such as cpu or cuda; which device of a host a rank takes is not the mesh's business");
}

bool counts_from_zero(const std::vector<std::int64_t>& ranks) {
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    if (ranks[index] != static_cast<std::int64_t>(index)) return false;
  }
  return true;
}

std::vector<Layout> row_major_layouts(const std::vector<MeshAxis>& axes) {
  std::vector<Layout> layouts(axes.size());
  std::int64_t stride = 1;
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    layouts[axis] = coalesce(Layout(axes[axis].size, stride));
    stride *= axes[axis].size;
  }
  return layouts;
}

std::string default_name(const std::vector<std::string>& names) { return join(names, "_"); }

std::vector<std::string> names_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return names;
}

// Steps that do not count like digits overlap: two coordinates would be the same place.
bool steps_overlap(const std::vector<Layout>& layouts) {
  std::vector<Leaf> steps;
  for (const Layout& layout : layouts) {
    for (const Leaf& leaf : layout.leaves()) {
      if (leaf.size > 1) steps.push_back(leaf);
    }
  }
  std::sort(steps.begin(), steps.end(), [](const Leaf& a, const Leaf& b) { return a.stride < b.stride; });
  for (std::size_t index = 0; index + 1 < steps.size(); ++index) {
    if (steps[index + 1].stride % (steps[index].size * steps[index].stride) != 0) return true;
  }
  return false;
}

// The index into a layout that leads to this place, if the other steps are ignored.
std::int64_t read_digits(const Layout& layout, std::int64_t place) {
  std::int64_t index = 0;
  for (const Leaf& leaf : layout.leaves()) {
    index *= leaf.size;
    if (leaf.size > 1) index += place / leaf.stride % leaf.size;
  }
  return index;
}

std::size_t hash_of(const MeshAxis& axis) {
  Hasher hasher;
  hasher.add(axis.name).add(static_cast<std::uint64_t>(axis.size)).add(axis.backend.name);
  for (const auto& [key, value] : axis.backend.options) hasher.add(key).add(value);
  return hasher.result();
}

}  // namespace

DeviceMesh::Root::Root(std::vector<MeshAxis> the_axes, std::vector<std::int64_t> the_ranks,
                       std::string the_device_type)
    : axes(std::move(the_axes)), ranks(std::move(the_ranks)), device_type(std::move(the_device_type)) {
  check_device_type(device_type);
  size = check_sizes(axes);
  check_names(axes);
  if (!ranks.empty() && static_cast<std::int64_t>(ranks.size()) != size) {
    throw UsageError("a mesh of " + counted(size, "rank", "ranks") + " cannot be laid over a list of " +
                     std::to_string(ranks.size()))
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
  const auto twice = std::adjacent_find(by_rank.begin(), by_rank.end(),
                                        [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != by_rank.end()) {
    throw UsageError("rank " + std::to_string(twice->first) + " appears twice in a mesh")
        .fact("axes", axes_text(axes))
        .fact("places", std::to_string(twice->second) + " and " + std::to_string((twice + 1)->second))
        .hint("list every rank once");
  }
}

std::optional<std::int64_t> DeviceMesh::Root::place_of(std::int64_t rank) const {
  if (ranks.empty()) return rank >= 0 && rank < size ? std::optional(rank) : std::nullopt;
  const auto found = std::lower_bound(by_rank.begin(), by_rank.end(), std::pair(rank, std::int64_t{0}));
  if (found == by_rank.end() || found->first != rank) return std::nullopt;
  return found->second;
}

bool DeviceMesh::Root::operator==(const Root& other) const {
  return hash == other.hash && device_type == other.device_type && axes == other.axes && ranks == other.ranks;
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
        .hint("steps must count through the " + std::to_string(root.size) + " ranks of the root like digits of a number");
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

DeviceMesh::DeviceMesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> ranks, std::string device_type) {
  auto root = std::make_shared<const Root>(std::move(axes), std::move(ranks), std::move(device_type));
  state_ = std::make_shared<const State>(root, root->axes, row_major_layouts(root->axes));
}

DeviceMesh DeviceMesh::over(std::shared_ptr<const Root> root, std::vector<MeshAxis> axes,
                            std::vector<Layout> layouts) {
  return DeviceMesh(std::make_shared<const State>(std::move(root), std::move(axes), std::move(layouts)));
}

std::size_t DeviceMesh::ndim() const { return state_->axes.size(); }
const std::vector<MeshAxis>& DeviceMesh::axes() const { return state_->axes; }
std::int64_t DeviceMesh::size() const { return state_->size; }
const std::string& DeviceMesh::device_type() const { return state_->root->device_type; }
std::int64_t DeviceMesh::fiber_count() const { return state_->fibers.size(); }
std::size_t DeviceMesh::hash() const { return state_->hash; }

std::vector<std::int64_t> DeviceMesh::shape() const {
  std::vector<std::int64_t> sizes;
  for (const MeshAxis& axis : axes()) sizes.push_back(axis.size);
  return sizes;
}

std::size_t DeviceMesh::axis_index(std::string_view name) const {
  for (std::size_t axis = 0; axis < ndim(); ++axis) {
    if (axes()[axis].name == name) return axis;
  }
  throw UsageError("the mesh has no axis " + quoted(name))
      .fact("mesh", to_string(*this))
      .hint("its axes are " + join(names_of(axes())));
}

std::optional<Coordinate> DeviceMesh::coordinate_of(std::int64_t rank) const {
  const std::optional<std::int64_t> place = state_->root->place_of(rank);
  if (!place) return std::nullopt;
  Coordinate coordinate;
  coordinate.reserve(ndim());
  for (const Layout& layout : state_->layouts) coordinate.push_back(read_digits(layout, *place));
  return coordinate;
}

std::optional<std::int64_t> DeviceMesh::fiber_of(std::int64_t rank) const {
  const std::optional<std::int64_t> place = state_->root->place_of(rank);
  if (!place) return std::nullopt;
  return read_digits(state_->fibers, *place);
}

std::int64_t DeviceMesh::offset_of(const Coordinate& coordinate, std::int64_t fiber) const {
  bool inside = coordinate.size() == ndim() && fiber >= 0 && fiber < fiber_count();
  for (std::size_t axis = 0; inside && axis < ndim(); ++axis) {
    inside = coordinate[axis] >= 0 && coordinate[axis] < axes()[axis].size;
  }
  if (!inside) {
    throw UsageError("the mesh has no place " + bracketed(coordinate) +
                     (fiber == 0 ? "" : " in fiber " + std::to_string(fiber)))
        .fact("mesh", to_string(*this))
        .fact("fibers", std::to_string(fiber_count()))
        .hint("give one coordinate per axis, from 0 to its size - 1");
  }
  std::int64_t place = state_->fibers(fiber);
  for (std::size_t axis = 0; axis < ndim(); ++axis) place += state_->layouts[axis](coordinate[axis]);
  return place;
}

std::int64_t DeviceMesh::rank_at(const Coordinate& coordinate, std::int64_t fiber) const {
  return state_->root->rank_at(offset_of(coordinate, fiber));
}

std::vector<std::int64_t> DeviceMesh::ranks(std::int64_t fiber) const {
  const std::int64_t begin = offset_of(Coordinate(ndim(), 0), fiber);
  const Layout grid = coalesce(tegula::concatenate(state_->layouts));
  std::vector<std::int64_t> result;
  result.reserve(static_cast<std::size_t>(size()));
  for (std::int64_t index = 0; index < size(); ++index) {
    result.push_back(state_->root->rank_at(begin + grid(index)));
  }
  return result;
}

std::optional<std::vector<std::int64_t>> DeviceMesh::group_of(std::int64_t rank, std::size_t axis) const {
  const std::optional<std::int64_t> place = state_->root->place_of(rank);
  if (!place) return std::nullopt;
  const Layout& layout = state_->layout_of(axis);
  const std::int64_t begin = *place - layout(read_digits(layout, *place));
  std::vector<std::int64_t> group;
  group.reserve(static_cast<std::size_t>(layout.size()));
  for (std::int64_t index = 0; index < layout.size(); ++index) {
    group.push_back(state_->root->rank_at(begin + layout(index)));
  }
  return group;
}

std::vector<std::vector<std::int64_t>> DeviceMesh::groups(std::size_t axis) const {
  const Layout& along = state_->layout_of(axis);
  std::vector<Layout> others{state_->fibers};
  for (std::size_t other = 0; other < ndim(); ++other) {
    if (other != axis) others.push_back(state_->layouts[other]);
  }
  const Layout begins = coalesce(tegula::concatenate(others));
  std::vector<std::vector<std::int64_t>> result(static_cast<std::size_t>(begins.size()));
  for (std::int64_t group = 0; group < begins.size(); ++group) {
    for (std::int64_t index = 0; index < along.size(); ++index) {
      result[static_cast<std::size_t>(group)].push_back(state_->root->rank_at(begins(group) + along(index)));
    }
  }
  return result;
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& names) const {
  if (names.empty()) {
    throw UsageError("a slice of a mesh needs at least one axis")
        .fact("mesh", to_string(*this))
        .hint("its axes are " + join(names_of(axes())));
  }
  std::vector<MeshAxis> chosen;
  std::vector<Layout> layouts;
  std::vector<bool> taken(ndim());
  for (const std::string& name : names) {
    const std::size_t axis = axis_index(name);
    if (taken[axis]) {
      throw UsageError("axis " + quoted(name) + " is named twice in a slice")
          .fact("mesh", to_string(*this))
          .hint("name each axis once");
    }
    taken[axis] = true;
    chosen.push_back(axes()[axis]);
    layouts.push_back(state_->layouts[axis]);
  }
  return over(state_->root, std::move(chosen), std::move(layouts));
}

DeviceMesh DeviceMesh::flatten(const std::string& name) const { return flatten(names_of(axes()), name); }

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& names, const std::string& name) const {
  const DeviceMesh merged = slice(names);
  MeshAxis axis{name.empty() ? default_name(names) : name, merged.size()};
  if (names.size() == 1) axis.backend = merged.axes().front().backend;
  const Layout layout = coalesce(tegula::concatenate(merged.state_->layouts));
  std::vector<MeshAxis> axes_after;
  std::vector<Layout> layouts_after;
  const std::size_t place = axis_index(names.front());
  for (std::size_t old = 0; old < ndim(); ++old) {
    if (old == place) {
      axes_after.push_back(axis);
      layouts_after.push_back(layout);
    } else if (std::find(names.begin(), names.end(), axes()[old].name) == names.end()) {
      axes_after.push_back(axes()[old]);
      layouts_after.push_back(state_->layouts[old]);
    }
  }
  return over(state_->root, std::move(axes_after), std::move(layouts_after));
}

DeviceMesh DeviceMesh::unflatten(std::string_view name, std::vector<MeshAxis> into) const {
  const std::size_t place = axis_index(name);
  const Layout& layout = state_->layouts[place];
  if (check_sizes(into) != layout.size()) {
    throw UsageError("axis " + quoted(name) + " of " + counted(layout.size(), "rank", "ranks") +
                     " cannot be unflattened into " + axes_text(into))
        .fact("mesh", to_string(*this))
        .hint("the sizes must multiply to " + std::to_string(layout.size()));
  }
  std::vector<Layout> parts;
  try {
    for (const Layout& part : row_major_layouts(into)) parts.push_back(coalesce(compose(layout, part)));
  } catch (const UsageError&) {
    throw UsageError("axis " + quoted(name) + " cannot be unflattened into " + axes_text(into) +
                     ": it walks through the ranks in steps of " + to_string(layout))
        .fact("mesh", to_string(*this))
        .hint("choose sizes that the steps can be grouped into");
  }
  std::vector<MeshAxis> axes_after = axes();
  std::vector<Layout> layouts_after = state_->layouts;
  const auto offset = static_cast<std::ptrdiff_t>(place);
  axes_after.erase(axes_after.begin() + offset);
  layouts_after.erase(layouts_after.begin() + offset);
  axes_after.insert(axes_after.begin() + offset, into.begin(), into.end());
  layouts_after.insert(layouts_after.begin() + offset, parts.begin(), parts.end());
  return over(state_->root, std::move(axes_after), std::move(layouts_after));
}

DeviceMesh DeviceMesh::concatenate(const std::vector<DeviceMesh>& meshes) {
  if (meshes.empty()) {
    throw UsageError("cannot concatenate no meshes").hint("give at least one mesh");
  }
  const std::shared_ptr<const Root>& root = meshes.front().state_->root;
  std::vector<MeshAxis> axes;
  std::vector<Layout> layouts;
  for (const DeviceMesh& mesh : meshes) {
    if (!(*mesh.state_->root == *root)) {
      throw UsageError("cannot concatenate meshes over different roots")
          .fact("one", to_string(meshes.front()))
          .fact("another", to_string(mesh))
          .hint("slice them from one mesh");
    }
    axes.insert(axes.end(), mesh.axes().begin(), mesh.axes().end());
    layouts.insert(layouts.end(), mesh.state_->layouts.begin(), mesh.state_->layouts.end());
  }
  if (steps_overlap(layouts)) {
    std::vector<std::string> texts;
    for (const DeviceMesh& mesh : meshes) texts.push_back(to_string(mesh));
    throw UsageError("cannot concatenate meshes that share ranks along an axis")
        .fact("meshes", join(texts))
        .hint("use each axis of the root once");
  }
  return over(root, std::move(axes), std::move(layouts));
}

DeviceMesh DeviceMesh::root() const {
  return over(state_->root, state_->root->axes, row_major_layouts(state_->root->axes));
}

bool DeviceMesh::is_root() const { return axes() == state_->root->axes && *this == root(); }

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  if (state_ == other.state_) return true;
  return state_->hash == other.state_->hash && state_->axes == other.state_->axes &&
         state_->layouts == other.state_->layouts &&
         (state_->root == other.state_->root || *state_->root == *other.state_->root);
}

}  // namespace tegula
