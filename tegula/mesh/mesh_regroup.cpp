// Meshes over the same root with other axes: slices, flattened, unflattened and concatenated ones.
#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/mesh/mesh_state.h"

namespace tegula {

using namespace inner;

namespace {

std::string default_name(const std::vector<std::string>& names) { return join(names, "_"); }

// Steps that do not count like digits overlap: two coordinates would be the same place.
bool steps_overlap(const std::vector<Layout>& layouts) {
  std::vector<Leaf> steps;
  for (const Layout& layout : layouts) {
    for (const Leaf& leaf : layout.leaves()) {
      if (leaf.size > 1) steps.push_back(leaf);
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const Leaf& a, const Leaf& b) { return a.stride < b.stride; });
  for (std::size_t index = 0; index + 1 < steps.size(); ++index) {
    if (steps[index + 1].stride % (steps[index].size * steps[index].stride) != 0) return true;
  }
  return false;
}

}  // namespace

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
      throw UsageError("axis " + in_quotes(name) + " is named twice in a slice")
          .fact("mesh", to_string(*this))
          .hint("name each axis once");
    }
    taken[axis] = true;
    chosen.push_back(axes()[axis]);
    layouts.push_back(state_->layouts[axis]);
  }
  return over_root(std::move(chosen), std::move(layouts));
}

DeviceMesh DeviceMesh::flatten(const std::string& name) const {
  return flatten(names_of(axes()), name);
}

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& names,
                               const std::string& name) const {
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
  return over_root(std::move(axes_after), std::move(layouts_after));
}

DeviceMesh DeviceMesh::unflatten(std::string_view name, std::vector<MeshAxis> into) const {
  const std::size_t place = axis_index(name);
  const Layout& layout = state_->layouts[place];
  if (check_sizes(into) != layout.size()) {
    throw UsageError("axis " + in_quotes(name) + " of " + counted(layout.size(), "rank", "ranks") +
                     " cannot be unflattened into " + axes_text(into))
        .fact("mesh", to_string(*this))
        .hint("the sizes must multiply to " + std::to_string(layout.size()));
  }
  std::vector<Layout> parts;
  try {
    for (const Layout& part : row_major_layouts(into))
      parts.push_back(coalesce(compose(layout, part)));
  } catch (const UsageError&) {
    throw UsageError("axis " + in_quotes(name) + " cannot be unflattened into " + axes_text(into) +
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
  return over_root(std::move(axes_after), std::move(layouts_after));
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
  return meshes.front().over_root(std::move(axes), std::move(layouts));
}

}  // namespace tegula
