// The compiled half of the Python package: `tegula._tegula`.
#include "bindings.h"

PYBIND11_MODULE(_tegula, module) {
  using namespace tegula::python;
  bind_errors(module);
  bind_placements(module);
  bind_mesh(module);
  bind_world(module);
  bind_groups(module);
  bind_tensors(module);
  bind_factories(module);
  bind_modules(module);
  bind_gradients(module);
  bind_rules(module);
  bind_switches(module);
  bind_log(module);
  bind_methods(module);
  bind_files(module);
}
