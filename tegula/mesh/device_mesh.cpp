// The idea: a root lists its ranks once, and every mesh over it maps coordinates to places in that
// list. Each axis is a layout (size:stride, or several steps if it was flattened from several
// axes), and so is what the axes leave out, the fibers. The steps of axes and fibers together count
// through the list like the digits of a number, so that rank -> coordinate reads off digits.
#include "tegula/mesh/device_mesh.h"

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/mesh/mesh_state.h"

namespace tegula {

using namespace inner;

namespace {

// The index into a layout that leads to this place, if the other steps are ignored.
std::int64_t read_digits(const Layout& layout, std::int64_t place) {
  std::int64_t index = 0;
  for (const Leaf& leaf : layout.leaves()) {
    index *= leaf.size;
    if (leaf.size > 1) index += place / leaf.stride % leaf.size;
  }
  return index;
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> ranks,
                       std::string device_type) {
  auto root =
      std::make_shared<const Root>(std::move(axes), std::move(ranks), std::move(device_type));
  state_ = std::make_shared<const State>(root, root->axes, row_major_layouts(root->axes));
}

DeviceMesh DeviceMesh::over_root(std::vector<MeshAxis> axes, std::vector<Layout> layouts) const {
  return {std::make_shared<const State>(state_->root, std::move(axes), std::move(layouts)), owner_};
}

DeviceMesh DeviceMesh::with_owner(std::shared_ptr<void> owner) const {
  return {state_, std::move(owner)};
}

bool DeviceMesh::covers(const DeviceMesh& part) const {
  if (*this == part) return true;
  if (!(*state_->root == *part.state_->root)) return false;
  const std::vector<std::int64_t> ranks = part.ranks();
  // fibers of one mesh are translations of each other, so looking at one is enough
  const std::optional<std::int64_t> mine = fiber_of(ranks.front());
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](std::int64_t rank) { return fiber_of(rank) == mine; });
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
  throw UsageError("the mesh has no axis " + in_quotes(name))
      .fact("mesh", to_string(*this))
      .hint("its axes are " + join(names_of(axes())));
}

Coordinate DeviceMesh::coordinate_at(std::int64_t index) const {
  Coordinate coordinate(ndim(), 0);
  for (std::size_t axis = ndim(); axis-- > 0;) {
    coordinate[axis] = index % axes()[axis].size;
    index /= axes()[axis].size;
  }
  return coordinate;
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
  for (std::size_t axis = 0; axis < ndim(); ++axis)
    place += state_->layouts[axis](coordinate[axis]);
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

std::optional<std::vector<std::int64_t>> DeviceMesh::group_of(std::int64_t rank,
                                                              std::size_t axis) const {
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
      result[static_cast<std::size_t>(group)].push_back(
          state_->root->rank_at(begins(group) + along(index)));
    }
  }
  return result;
}

DeviceMesh DeviceMesh::root() const {
  return over_root(state_->root->axes, row_major_layouts(state_->root->axes));
}

bool DeviceMesh::is_root() const { return axes() == state_->root->axes && *this == root(); }

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  if (state_ == other.state_) return true;
  return state_->hash == other.state_->hash && state_->axes == other.state_->axes &&
         state_->layouts == other.state_->layouts &&
         (state_->root == other.state_->root || *state_->root == *other.state_->root);
}

}  // namespace tegula
