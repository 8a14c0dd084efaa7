// Our errors as Python's.
#include <torch/csrc/Exceptions.h>

#include <string>

#include "bindings.h"
#include "tegula/payload/host_errors.h"

namespace tegula::python {

using namespace inner;

namespace {

// The Python classes of our errors, made when the module is; they live as long as the process.
struct ErrorClasses {
  PyObject* usage = nullptr;
  PyObject* comm = nullptr;
  PyObject* internal = nullptr;
};

ErrorClasses& error_classes() {
  static ErrorClasses classes;
  return classes;
}

void set_python_error(const Error& error) {
  PyObject* type = error_classes().internal;
  if (dynamic_cast<const UsageError*>(&error) != nullptr) type = error_classes().usage;
  if (dynamic_cast<const CommError*>(&error) != nullptr) type = error_classes().comm;
  PyErr_SetString(type, error.what());
}

// What our own functions throw.
void translate(std::exception_ptr error) {
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    set_python_error(e);
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

// What torch's functions throw when they run ours.
void throw_python_error(const Error& error) {
  const py::gil_scoped_acquire locked;
  set_python_error(error);
  python_error carried;
  carried.persist();
  throw carried;
}

}  // namespace

void bind_errors(py::module_& module) {
  const auto define = [&module](const char* name, const char* doc, PyObject* base) {
    const std::string qualified = std::string("tegula.") + name;
    PyObject* made = PyErr_NewExceptionWithDoc(qualified.c_str(), doc, base, nullptr);
    if (made == nullptr) throw py::error_already_set();
    module.attr(name) = py::reinterpret_borrow<py::object>(made);
    return made;
  };
  PyObject* base = define("Error", "What Tegula throws.", PyExc_RuntimeError);
  const py::object bases = py::make_tuple(
      py::handle(base), py::handle(PyExc_ValueError));  // as Python's own calls throw
  error_classes().usage = define("UsageError", "A call that must be fixed.", bases.ptr());
  error_classes().comm = define("CommError", "A peer or a link failed.", base);
  error_classes().internal = define("InternalError", "A bug in Tegula; please report it.", base);
  py::register_local_exception_translator(translate);
  set_host_error_translator(throw_python_error);
}

}  // namespace tegula::python
