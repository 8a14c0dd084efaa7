// Distributed tensors from nothing.
#include <optional>
#include <variant>

#include "bindings.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/tensor/factories.h"

namespace tegula::python {

namespace {

at::TensorOptions options_of(std::optional<at::ScalarType> dtype, bool requires_grad) {
  return at::TensorOptions().dtype(dtype).requires_grad(requires_grad);
}

using Number = std::variant<bool, std::int64_t, double, c10::complex<double>>;

at::Scalar in_cpp(const Number& number) {
  return std::visit([](auto value) { return at::Scalar(value); }, number);
}
std::int64_t in_cpp(std::int64_t number) { return number; }
const Shape& in_cpp(const Shape& shape) { return shape; }

// A factory that takes these before (mesh, placements, options).
template <class... Args, class Make>
void bind_factory(py::module_& module, const char* name, Make make) {
  module.def(
      name,
      [make](const Args&... args, const DeviceMesh& mesh, const Placements& placements,
             std::optional<at::ScalarType> dtype, bool requires_grad) {
        return make(in_cpp(args)..., mesh, placements, options_of(dtype, requires_grad));
      },
      Unlocked());
}

}  // namespace

void bind_factories(py::module_& module) {
  bind_factory<Shape>(module, "empty", &empty);
  bind_factory<Shape>(module, "zeros", &zeros);
  bind_factory<Shape>(module, "ones", &ones);
  bind_factory<Shape, Number>(module, "full", &full);
  bind_factory<Number, Number, Number>(module, "arange", &arange);
  bind_factory<Shape>(module, "rand", &rand);
  bind_factory<Shape>(module, "randn", &randn);
  bind_factory<std::int64_t, std::int64_t, Shape>(module, "randint", &randint);
  bind_factory<std::int64_t, std::int64_t>(module, "eye", &eye);
}

}  // namespace tegula::python
