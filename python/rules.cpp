// Rules and decompositions of the user's own.
#include <torch/csrc/jit/python/pybind_utils.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "tegula/tensor/register_sharding.h"

namespace tegula::python {

namespace {

using Values = std::vector<c10::IValue>;

const c10::FunctionSchema& schema_of(const std::string& op) {
  const std::size_t dot = op.find('.', op.find("::"));
  const c10::OperatorName name{op.substr(0, dot), dot == op.npos ? "" : op.substr(dot + 1)};
  const auto found = c10::Dispatcher::singleton().findSchema(name);
  if (!found) throw UsageError("there is no operator \"" + op + "\"");
  return found->schema();
}

// What the function gave, as the op's results.
Values as_results(const py::object& given, const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  if (returns.empty()) return {};
  if (returns.size() == 1) return {torch::jit::toIValue(given, returns[0].type())};
  Values results;
  std::size_t place = 0;
  for (const py::handle item : given) {
    if (place == returns.size()) break;
    results.push_back(torch::jit::toIValue(item, returns[place++].type()));
  }
  return results;
}

// Registered for good, so the function is never let go of.
void register_python_decomposition(const std::string& op, const py::function& function) {
  const c10::FunctionSchema& schema = schema_of(op);
  PyObject* kept = function.inc_ref().ptr();
  register_decomposition(op, [kept, &schema](const Values& values) {
    const py::gil_scoped_acquire locked;
    py::tuple arguments(values.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
      arguments[k] = torch::jit::toPyObject(values[k]);
    }
    return as_results(py::reinterpret_borrow<py::function>(kept)(*arguments), schema);
  });
}

}  // namespace

void bind_rules(py::module_& module) {
  module.def("register_sharding", [](const std::string& op, const std::string& rule) {
    register_sharding_text(op, rule);
  });
  module.def("register_decomposition", register_python_decomposition);
}

}  // namespace tegula::python
