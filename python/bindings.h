// The parts of `tegula._tegula`, one per file: the words of the C++ headers, no more; defaults,
// conveniences and docstrings are in tegula/*.py.
//
// What communicates runs without the interpreter's lock, so that other Python threads (ranks of
// run_ranks among them) go on while a rank waits for another.
#pragma once

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tegula/base/error.h"

namespace tegula::python {

using Unlocked = py::call_guard<py::gil_scoped_release>;
using Sizes = std::vector<std::int64_t>;

void bind_errors(py::module_& module);      // errors.cpp
void bind_placements(py::module_& module);  // placements.cpp
void bind_mesh(py::module_& module);        // mesh.cpp
void bind_world(py::module_& module);       // world.cpp
void bind_groups(py::module_& module);      // groups.cpp
void bind_tensors(py::module_& module);     // tensors.cpp
void bind_factories(py::module_& module);   // factories.cpp
void bind_modules(py::module_& module);     // modules.cpp
void bind_gradients(py::module_& module);   // gradients.cpp
void bind_rules(py::module_& module);       // rules.cpp
void bind_switches(py::module_& module);    // switches.cpp
void bind_log(py::module_& module);         // log.cpp
void bind_methods(py::module_& module);     // methods.cpp
void bind_files(py::module_& module);       // files.cpp

// What a guard in C++ is in Python: a context manager, entered and left on one thread, as often as
// wanted. A subclass says how a guard is made.
template <class Guard>
class GuardContext {
 public:
  virtual ~GuardContext() = default;
  void enter() { guards_.push_back(make()); }
  void leave() {
    if (guards_.empty()) {
      throw UsageError("a context is left that was not entered").hint("use it in a with statement");
    }
    guards_.pop_back();
  }

 private:
  virtual std::unique_ptr<Guard> make() const = 0;
  std::vector<std::unique_ptr<Guard>> guards_;
};

template <class Context>
py::class_<Context> bind_context(py::module_& module, const char* name, const char* doc) {
  py::class_<Context> type(module, name, doc);
  type.def("__enter__", [](Context& self) { self.enter(); })
      .def("__exit__", [](Context& self, const py::args&) { self.leave(); });
  return type;
}

}  // namespace tegula::python
