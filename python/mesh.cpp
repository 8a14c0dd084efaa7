// Meshes.
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings.h"
#include "tegula/comm/world.h"
#include "tegula/mesh/device_mesh.h"

namespace tegula::python {

namespace {

py::tuple axis_names(const DeviceMesh& mesh) {
  py::tuple names(mesh.ndim());
  for (std::size_t i = 0; i < mesh.ndim(); ++i) names[i] = mesh.axes()[i].name;
  return names;
}

py::tuple axes_of(const DeviceMesh& mesh) {
  py::tuple axes(mesh.ndim());
  for (std::size_t i = 0; i < mesh.ndim(); ++i)
    axes[i] = py::make_tuple(mesh.axes()[i].name, mesh.axes()[i].size);
  return axes;
}

py::object coordinate_of_this_rank(const DeviceMesh& mesh) {
  const auto coordinate = mesh.coordinate_of(World::of(mesh).rank());
  if (!coordinate) return py::none();
  return py::tuple(py::cast(Sizes(coordinate->begin(), coordinate->end())));
}

// The ranks of the fiber that this rank is in, or of the first one.
Sizes ranks_around_this_rank(const DeviceMesh& mesh) {
  return mesh.ranks(mesh.fiber_of(World::of(mesh).rank()).value_or(0));
}

// An axis as PyTorch's functions on meshes take it: a name, a place, or nothing if there is one.
using AxisWord = std::optional<std::variant<std::int64_t, std::string>>;

std::size_t axis_of(const DeviceMesh& mesh, const AxisWord& word) {
  if (!word) {
    if (mesh.ndim() == 1) return 0;
    throw UsageError("a mesh with several axes needs the name of one")
        .fact("mesh", to_string(mesh))
        .hint("name one, or slice the mesh");
  }
  if (const auto* name = std::get_if<std::string>(&*word)) return mesh.axis_index(*name);
  const auto place = std::get<std::int64_t>(*word);
  const auto count = static_cast<std::int64_t>(mesh.ndim());
  if (place < -count || place >= count) {
    throw UsageError("a mesh has no such axis")
        .fact("mesh", to_string(mesh))
        .fact("axis", std::to_string(place))
        .hint("axes are numbered from 0");
  }
  return static_cast<std::size_t>(place < 0 ? place + count : place);
}

std::int64_t size_of_axis(const DeviceMesh& mesh, const AxisWord& word) {
  return word ? mesh.axes()[axis_of(mesh, word)].size : mesh.size();
}

std::int64_t place_along(const DeviceMesh& mesh, const AxisWord& word) {
  const std::size_t axis = axis_of(mesh, word);
  const auto coordinate = mesh.coordinate_of(World::of(mesh).rank());
  if (!coordinate) {
    throw UsageError("this rank is not in the mesh").fact("mesh", to_string(mesh));
  }
  return (*coordinate)[axis];
}

Sizes ranks_along(const DeviceMesh& mesh, const AxisWord& word) {
  return mesh.group_of(World::of(mesh).rank(), axis_of(mesh, word)).value_or(Sizes());
}

DeviceMesh unflatten(const DeviceMesh& mesh, const AxisWord& word,
                     const std::vector<std::pair<std::string, std::int64_t>>& into) {
  std::vector<MeshAxis> axes;
  for (const auto& [name, size] : into) axes.push_back({.name = name, .size = size});
  return mesh.unflatten(mesh.axes()[axis_of(mesh, word)].name, std::move(axes));
}

}  // namespace

void bind_mesh(py::module_& module) {
  py::class_<DeviceMesh>(module, "DeviceMesh",
                         "Ranks arranged in a grid with named axes; made by init_device_mesh.")
      .def_property_readonly("axes", axes_of, "(name, size) of every axis.")
      .def_property_readonly("names", axis_names)
      .def_property_readonly(
          "shape", [](const DeviceMesh& mesh) { return py::tuple(py::cast(mesh.shape())); })
      .def_property_readonly("ndim", &DeviceMesh::ndim)
      .def_property_readonly("device_type", &DeviceMesh::device_type)
      .def_property_readonly("coordinate", coordinate_of_this_rank,
                             "Where this rank is; None if it is not in the mesh.")
      .def_property_readonly("ranks", ranks_around_this_rank, "All ranks, row by row.")
      .def("size", size_of_axis, py::arg("mesh_dim") = py::none(),
           "How many ranks; along one axis, given by its name or place.")
      .def_property_readonly("mesh_dim_names", axis_names)
      .def("get_rank", [](const DeviceMesh& mesh) { return World::of(mesh).rank(); })
      .def("get_coordinate", coordinate_of_this_rank)
      .def("get_local_rank", place_along, py::arg("mesh_dim") = py::none(),
           "Where this rank is along an axis.")
      .def("ranks_along", ranks_along, py::arg("mesh_dim") = py::none(),
           "The ranks that differ from this one along the axis only, itself included.")
      .def_property_readonly("root", &DeviceMesh::root)
      .def_property_readonly("is_root", &DeviceMesh::is_root)
      .def("unflatten", unflatten, "One axis as several, the last running fastest.")
      .def_static("concatenate", &DeviceMesh::concatenate)
      .def("__copy__", [](const py::object& self) { return self; })
      .def("__deepcopy__", [](const py::object& self, const py::dict&) { return self; })
      .def(
          "__getitem__", [](const DeviceMesh& mesh, const std::string& name) { return mesh[name]; },
          "The axis of this name, or the axes of these names in this order.")
      .def("__getitem__", &DeviceMesh::slice)
      .def(
          "flatten",
          [](const DeviceMesh& mesh, const std::string& name) { return mesh.flatten(name); },
          py::arg("name") = "", "All axes as one.")
      .def("__eq__", &DeviceMesh::operator==, py::is_operator())
      .def("__hash__", &DeviceMesh::hash)
      .def("__repr__", [](const DeviceMesh& mesh) { return to_string(mesh); });
}

}  // namespace tegula::python
