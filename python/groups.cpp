// Groups and their collectives, on plain tensors.
#include <optional>
#include <string>

#include "bindings.h"
#include "tegula/comm/group.h"
#include "tegula/tensor/collectives.h"

namespace tegula::python {

namespace {

using Op = std::string;  // "sum", "avg", ...

ReduceOp named(const Op& op) { return parse_reduce_op(op); }

void bind_pending(py::module_& module) {
  py::class_<Pending>(module, "Pending", "A call that may be under way.")
      .def("wait", &Pending::wait, "Its result; None if it has none.", Unlocked())
      .def("is_done", &Pending::is_done);
}

// Results that autograd does not follow.
void bind_calls(py::class_<Group>& type) {
  type.def(
          "all_reduce",
          [](const Group& group, const at::Tensor& x, const Op& op) {
            return group.all_reduce(x, named(op));
          },
          py::arg("tensor"), py::arg("op") = "sum", Unlocked())
      .def(
          "all_reduce_",
          [](const Group& group, const at::Tensor& x, const Op& op) {
            group.all_reduce_(x, named(op));
          },
          py::arg("tensor"), py::arg("op") = "sum", "In place.", Unlocked())
      .def("all_gather", &Group::all_gather, py::arg("tensor"), py::arg("dim") = 0,
           py::arg("sizes") = Sizes(), Unlocked())
      .def(
          "reduce_scatter",
          [](const Group& group, const at::Tensor& x, std::int64_t dim, const Op& op,
             const Sizes& sizes) { return group.reduce_scatter(x, dim, named(op), sizes); },
          py::arg("tensor"), py::arg("dim") = 0, py::arg("op") = "sum", py::arg("sizes") = Sizes(),
          Unlocked())
      .def("all_to_all", &Group::all_to_all, py::arg("tensor"), py::arg("split_dim") = 0,
           py::arg("join_dim") = 0, py::arg("split_sizes") = Sizes(),
           py::arg("join_sizes") = Sizes(), Unlocked())
      .def("broadcast", &Group::broadcast, py::arg("tensor"), py::arg("root") = 0, Unlocked())
      .def("broadcast_", &Group::broadcast_, py::arg("tensor"), py::arg("root") = 0, Unlocked())
      .def("gather", &Group::gather, py::arg("tensor"), py::arg("dim") = 0, py::arg("root") = 0,
           py::arg("sizes") = Sizes(), Unlocked())
      .def("permute", &Group::permute, py::arg("tensor"), py::arg("to"),
           py::arg("shape") = py::none(), Unlocked())
      .def("send", &Group::send_with_shape, py::arg("tensor"), py::arg("to"), py::arg("tag") = 0,
           Unlocked())
      .def("recv", &Group::recv_with_shape, py::arg("sender"), py::arg("tag") = 0, Unlocked())
      .def("barrier", &Group::barrier, Unlocked());
}

void bind_async_calls(py::class_<Group>& type) {
  type.def(
          "all_reduce_async",
          [](const Group& group, const at::Tensor& x, const Op& op) {
            return group.all_reduce_async(x, named(op));
          },
          py::arg("tensor"), py::arg("op") = "sum", Unlocked())
      .def("all_gather_async", &Group::all_gather_async, py::arg("tensor"), py::arg("dim") = 0,
           py::arg("sizes") = Sizes(), Unlocked())
      .def(
          "reduce_scatter_async",
          [](const Group& group, const at::Tensor& x, std::int64_t dim, const Op& op,
             const Sizes& sizes) { return group.reduce_scatter_async(x, dim, named(op), sizes); },
          py::arg("tensor"), py::arg("dim") = 0, py::arg("op") = "sum", py::arg("sizes") = Sizes(),
          Unlocked())
      .def("broadcast_async", &Group::broadcast_async, py::arg("tensor"), py::arg("root") = 0,
           Unlocked())
      .def("barrier_async", &Group::barrier_async, Unlocked());
}

// Those that autograd follows.
void bind_differentiable(py::module_& module) {
  module.def(
      "all_reduce",
      [](const at::Tensor& x, const Group& group, const Op& op) {
        return all_reduce(x, group, named(op));
      },
      Unlocked());
  module.def("all_gather", &all_gather, Unlocked());
  module.def(
      "reduce_scatter",
      [](const at::Tensor& x, const Group& group, std::int64_t dim, const Op& op,
         const Sizes& sizes) { return reduce_scatter(x, group, dim, named(op), sizes); },
      Unlocked());
  module.def("all_to_all", &all_to_all, Unlocked());
  module.def("broadcast", &broadcast, Unlocked());
  module.def("permute", &permute, Unlocked());
}

}  // namespace

void bind_groups(py::module_& module) {
  bind_pending(module);
  py::class_<Group> type(module, "Group",
                         "Ranks that talk; made by tegula.group. Every member makes the same calls "
                         "in the same order.");
  type.def_property_readonly("name", &Group::name)
      .def_property_readonly("ranks", &Group::ranks)
      .def_property_readonly("size", &Group::size)
      .def_property_readonly("index", &Group::index, "This rank's place among the members.")
      .def_property_readonly("engine", &Group::engine)
      .def("abort", &Group::abort);
  bind_calls(type);
  bind_async_calls(type);
  bind_differentiable(module);
}

}  // namespace tegula::python
