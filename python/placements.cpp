// Placements.
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "bindings.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/placement/placement.h"

namespace tegula::python {

namespace {

template <class T>
void bind_as_value(py::class_<T>& type) {
  type.def("__repr__", [](const T& self) { return to_string(Placement(self)); })
      .def(
          "__eq__", [](const T& self, const T& other) { return self == other; }, py::is_operator())
      .def("__hash__", [](const T& self) { return hash_of(Placement(self)); })
      .def("__copy__", [](const py::object& self) { return self; })
      .def("__deepcopy__", [](const py::object& self, const py::dict&) { return self; })
      .def(py::pickle([](const T& self) { return to_string(Placement(self)); },
                      [](const std::string& text) { return std::get<T>(parse_placement(text)); }));
  // What kind of placement it is, in the words of PyTorch's placements.
  type.def(
          "is_shard",
          [](const T& self, std::optional<std::int64_t> dim) {
            if constexpr (std::is_same_v<T, Shard>) return !dim || *dim == self.dim();
            return false;
          },
          py::arg("dim") = py::none())
      .def("is_replicate", [](const T&) { return std::is_same_v<T, Replicate>; })
      .def(
          "is_partial",
          [](const T& self, std::optional<std::string> op) {
            if constexpr (std::is_same_v<T, Partial>) return !op || *op == name_of(self.op());
            return std::is_same_v<T, MaskPartial> && op.value_or("sum") == "sum";
          },
          py::arg("reduce_op") = py::none());
}

Shard shard_of(std::int64_t dim, std::optional<Sizes> sizes, std::optional<std::int64_t> blocks) {
  if (!sizes && !blocks) return Shard(dim);
  return {dim, Cut(blocks ? Sizes{*blocks} : Sizes(),
                   sizes ? std::vector<Sizes>{std::move(*sizes)} : std::vector<Sizes>())};
}

}  // namespace

void bind_placements(py::module_& module) {
  py::class_<Replicate> replicate(module, "Replicate", "Every rank along the axis holds the same.");
  replicate.def(py::init<>());
  bind_as_value(replicate);

  py::class_<Shard> shard(module, "Shard",
                          "The axis cuts a dim of the tensor: into chunks of ceil(size / ranks), "
                          "or into shards of the given sizes. blocks: the dim is that many parts "
                          "side by side, and each is cut.");
  shard
      .def(py::init(&shard_of), py::arg("dim"), py::arg("sizes") = py::none(),
           py::arg("blocks") = py::none())
      .def_property_readonly("dim", &Shard::dim);
  bind_as_value(shard);

  py::class_<Partial> partial(module, "Partial",
                              "The value is the sum (avg, min, max, product, band, bor, bxor) of "
                              "what the ranks along the axis hold; a reduction is owed.");
  partial
      .def(py::init([](std::string_view op) { return Partial(parse_reduce_op(op)); }),
           py::arg("reduce_op") = "sum")
      .def_property_readonly("reduce_op", [](const Partial& self) { return name_of(self.op()); });
  bind_as_value(partial);

  py::class_<MaskPartial> mask(module, "MaskPartial",
                               "A lookup in entries that the axis cuts: one rank holds the value, "
                               "the others hold zeros, and a sum is owed.");
  mask.def(py::init<std::int64_t>(), py::arg("extent"))
      .def_property_readonly("extent", &MaskPartial::extent);
  bind_as_value(mask);
}

}  // namespace tegula::python
