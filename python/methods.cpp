// Methods of torch.Tensor that distributed tensors answer otherwise: an object that stands in the
// class as a method does and hands the call, as it came, to the one function or to the other. Plain
// tensors pay for a look at the dispatch key and one more call in C.
#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>

#include "bindings.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::python {

namespace {

PyObject* new_reference(PyObject* object) {
  Py_INCREF(object);
  return object;
}

struct ForkedMethod {
  PyObject_HEAD vectorcallfunc call;
  PyObject* distributed;
  PyObject* plain;
};

PyObject* call_forked(PyObject* self, PyObject* const* args, std::size_t count, PyObject* names) {
  auto* method = reinterpret_cast<ForkedMethod*>(self);
  const bool is_distributed = PyVectorcall_NARGS(count) > 0 && THPVariable_Check(args[0]) &&
                              is_dtensor(THPVariable_Unpack(args[0]));
  return PyObject_Vectorcall(is_distributed ? method->distributed : method->plain, args, count,
                             names);
}

PyObject* bind_forked(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) return new_reference(self);
  return PyMethod_New(self, object);
}

// What it does not say itself (its name, its signature), the plain one says.
PyObject* attribute_of_forked(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<ForkedMethod*>(self)->plain, name);
}

PyType_Slot forked_slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_forked)},
    {Py_tp_getattro, reinterpret_cast<void*>(attribute_of_forked)},
    {Py_tp_members, nullptr},  // set below
    {0, nullptr},
};

PyMemberDef forked_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ForkedMethod, call), READONLY, nullptr},
    {"__wrapped__", T_OBJECT_EX, offsetof(ForkedMethod, plain), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject* forked_type() {
  static PyTypeObject* const type = [] {
    forked_slots[3].pfunc = forked_members;
    static PyType_Spec spec = {
        "tegula._tegula.ForkedMethod", sizeof(ForkedMethod), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
        forked_slots};
    PyObject* made = PyType_FromSpec(&spec);
    if (made == nullptr) throw py::error_already_set();
    return reinterpret_cast<PyTypeObject*>(made);
  }();
  return type;
}

// Lives as long as the class that it stands in: for good.
py::object forked(const py::object& distributed, const py::object& plain) {
  auto* made = PyObject_New(ForkedMethod, forked_type());
  if (made == nullptr) throw py::error_already_set();
  made->call = call_forked;
  made->distributed = new_reference(distributed.ptr());
  made->plain = new_reference(plain.ptr());
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

}  // namespace

void bind_methods(py::module_& module) { module.def("forked_method", forked); }

}  // namespace tegula::python
