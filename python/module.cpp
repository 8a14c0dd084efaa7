// The compiled half of the Python package: `tegula._tegula`. The words of the C++ headers, no more;
// defaults, conveniences and docstrings are in tegula/__init__.py.
//
// What communicates runs without the interpreter's lock, so that other Python threads go on while
// a rank waits for another.
#include <pybind11/chrono.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/lane.h"
#include "tegula/comm/world.h"
#include "tegula/dispatch/decision_cache.h"
#include "tegula/families/families.h"
#include "tegula/gradient/gradients.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/payload.h"
#include "tegula/random/random.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/factories.h"
#include "tegula/tensor/name_patterns.h"
#include "tegula/tensor/register_sharding.h"
#include "tegula/tensor/show.h"

namespace tegula::python {

using namespace inner;

namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;
using Sizes = std::vector<std::int64_t>;

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

void bind_errors(py::module_& module) {
  const auto define = [&module](const char* name, const char* doc, PyObject* base) {
    const std::string qualified = std::string("tegula.") + name;
    PyObject* made = PyErr_NewExceptionWithDoc(qualified.c_str(), doc, base, nullptr);
    if (made == nullptr) throw py::error_already_set();
    module.attr(name) = py::reinterpret_borrow<py::object>(made);
    return made;
  };
  PyObject* base = define("Error", "What Tegula throws.", PyExc_RuntimeError);
  error_classes().usage = define("UsageError", "A call that must be fixed.", base);
  error_classes().comm = define("CommError", "A peer or a link failed.", base);
  error_classes().internal = define("InternalError", "A bug in Tegula; please report it.", base);
  py::register_local_exception_translator(translate);
  set_host_error_translator(throw_python_error);
}

template <class T>
void bind_as_value(py::class_<T>& type) {
  type.def("__repr__", [](const T& self) { return to_string(Placement(self)); })
      .def(
          "__eq__", [](const T& self, const T& other) { return self == other; }, py::is_operator())
      .def("__hash__", [](const T& self) { return hash_of(Placement(self)); });
}

void bind_placements(py::module_& module) {
  py::class_<Replicate> replicate(module, "Replicate", "Every rank along the axis holds the same.");
  replicate.def(py::init<>());
  bind_as_value(replicate);

  py::class_<Shard> shard(module, "Shard",
                          "The axis cuts a dim of the tensor: into chunks of ceil(size / ranks), "
                          "or into shards of the given sizes.");
  shard
      .def(py::init([](std::int64_t dim, std::optional<Sizes> sizes) {
             return sizes ? Shard(dim, Cut::ragged(std::move(*sizes))) : Shard(dim);
           }),
           py::arg("dim"), py::arg("sizes") = py::none())
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
      .def("size", &DeviceMesh::size, "How many ranks.")
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

World world_from_env(std::string backend, std::optional<std::chrono::milliseconds> timeout) {
  return World::from_env({.backend = std::move(backend), .timeout = timeout});
}

DeviceMesh mesh_of_world(const World& world,
                         const std::vector<std::pair<std::string, std::int64_t>>& axes, Sizes ranks,
                         std::string device_type) {
  std::vector<MeshAxis> made;
  for (const auto& [name, size] : axes) made.push_back({.name = name, .size = size});
  return world.mesh(DeviceMesh(std::move(made), std::move(ranks), std::move(device_type)));
}

void bind_world(py::module_& module) {
  py::class_<World>(module, "World", "The ranks of a job.")
      .def_static("from_env", world_from_env, py::arg("backend"), py::arg("timeout"), Unlocked())
      .def_property_readonly("rank", &World::rank)
      .def_property_readonly("size", &World::size)
      .def_property_readonly("local_rank", &World::local_rank)
      .def_property_readonly("local_size", &World::local_size)
      .def_property_readonly("epoch", &World::epoch)
      .def("recover", &World::recover, Unlocked())
      .def("mesh", mesh_of_world, py::arg("axes"), py::arg("ranks"), py::arg("device_type"));
  module.def("manual_seed", &manual_seed);
  module.def("rng_state", [](const World& world) {
    const RNGState state = rng_state(world);
    return std::make_tuple(state.seed, state.draws);
  });
  using Draws = std::map<std::uint64_t, std::uint64_t>;
  module.def("set_rng_state", [](const World& world, std::uint64_t seed, const Draws& draws) {
    set_rng_state(world, {.seed = seed, .draws = draws});
  });
}

at::Tensor distribute(const at::Tensor& tensor, const DeviceMesh& mesh,
                      const Placements& placements, std::optional<std::int64_t> source) {
  return distribute_tensor(tensor, mesh, placements, {.source = source});
}

at::Tensor from_tiles(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                      std::optional<Shape> shape, std::optional<Shape> stride, bool check,
                      std::optional<Placements> grad_placements) {
  return from_local(local, mesh, placements,
                    {.shape = std::move(shape),
                     .stride = std::move(stride),
                     .check = check,
                     .grad_placements = std::move(grad_placements)});
}

at::Tensor place_otherwise(const at::Tensor& tensor, const DeviceMesh& mesh,
                           const Placements& placements, bool async_op,
                           std::optional<at::ScalarType> wire) {
  return redistribute(tensor, mesh, placements, {.async_op = async_op, .wire = wire});
}

// Whether a DTensor is where it would be moved to.
bool is_placed(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  const DTensorSpec spec = spec_of(tensor);
  return spec == DTensorSpec(mesh, placements, spec.meta());
}

// The spec, as text, that a module's tensor would get. UsageError that names the tensor if the
// placements do not fit.
std::string spec_asked(const std::string& name, const at::Tensor& tensor, const DeviceMesh& mesh,
                       const Placements& placements) {
  try {
    return to_string(DTensorSpec(mesh, placements, dense(meta_of(tensor))));
  } catch (UsageError& error) {
    throw std::move(error).fact("tensor", in_quotes(name));
  }
}

// Whether this rank alone can say what the tensor's values are.
bool holds_values(const at::Tensor& tensor) {
  return !payload_in(tensor)->link() && spec_of(tensor).is_replicated();
}

void bind_tensors(py::module_& module) {
  module.def("is_dtensor", &is_dtensor);
  module.def("spec", [](const at::Tensor& tensor) { return to_string(spec_of(tensor)); });
  module.def("placements",
             [](const at::Tensor& tensor) { return py::tuple(py::cast(placements_of(tensor))); });
  module.def("mesh", &mesh_of);
  module.def("is_placed", is_placed);
  module.def("spec_asked", spec_asked);
  module.def("last_matches", &last_matches);
  module.def("distribute_tensor", distribute, Unlocked());
  module.def("from_local", from_tiles, Unlocked());
  module.def("to_local", &to_local, Unlocked());
  module.def("full_tensor", &full_tensor, Unlocked());
  module.def("shard_batch", &shard_batch, Unlocked());
  module.def("redistribute", place_otherwise, Unlocked());
  module.def("show", &show, Unlocked());
  module.def("holds_values", &holds_values);
  module.def("to_string", [](const at::Tensor& tensor) { return to_string(tensor); }, Unlocked());
}

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

template <class Guard>
void leave_last(std::vector<std::unique_ptr<Guard>>& guards) {
  if (guards.empty()) {
    throw UsageError("a context is left that was not entered").hint("use it in a with statement");
  }
  guards.pop_back();
}

// A scoped guard as a context manager: entered and left on one thread, as often as wanted.
template <class Guard>
class GuardContext {
 public:
  void enter() { guards_.push_back(std::make_unique<Guard>()); }
  void leave() { leave_last(guards_); }

 private:
  std::vector<std::unique_ptr<Guard>> guards_;
};

template <class Guard>
void bind_guard(py::module_& module, const char* name, const char* doc) {
  using Context = GuardContext<Guard>;
  py::class_<Context>(module, name, doc)
      .def(py::init<>())
      .def("__enter__", &Context::enter)
      .def("__exit__", [](Context& self, const py::args&) { self.leave(); });
}

void bind_guards(py::module_& module) {
  bind_guard<ImplicitReplication>(
      module, "implicit_replication",
      "While it is entered, plain tensors among distributed ones count as replicated.");
  bind_guard<StrictMode>(module, "strict_mode",
                         "While it is entered, an op that would move data unasked is a UsageError "
                         "that names the op and the plan.");
}

// The same of a lane.
class LaneContext {
 public:
  explicit LaneContext(std::string name) : name_(std::move(name)) {}
  void enter() { guards_.push_back(std::make_unique<Lane>(name_)); }
  void leave() { leave_last(guards_); }

 private:
  std::string name_;
  std::vector<std::unique_ptr<Lane>> guards_;
};

void bind_lanes(py::module_& module) {
  py::class_<LaneContext>(module, "lane",
                          "While it is entered, what this thread sends meets what the other ranks "
                          "send on the lane of this name, so that several threads of a rank may "
                          "communicate at the same time.")
      .def(py::init<std::string>())
      .def("__enter__", &LaneContext::enter)
      .def("__exit__", [](LaneContext& self, const py::args&) { self.leave(); });
}

// A policy for backward passes as a context manager: entered and left on one thread, any number of
// times.
class PolicyContext {
 public:
  explicit PolicyContext(const std::string& policy) : policy_(parse_gradient_policy(policy)) {}
  void enter() { guards_.push_back(std::make_unique<GradientPolicyGuard>(policy_)); }
  void leave() { leave_last(guards_); }

 private:
  GradientPolicy policy_;
  std::vector<std::unique_ptr<GradientPolicyGuard>> guards_;
};

void bind_gradients(py::module_& module) {
  py::class_<PolicyContext>(
      module, "gradient_policy",
      "While it is entered, backward passes follow this policy: \"hold over dp, "
      "else now\". It outranks what was said for modules and leaves.")
      .def(py::init<std::string>())
      .def("__enter__", &PolicyContext::enter)
      .def("__exit__", [](PolicyContext& self, const py::args&) { self.leave(); });
  module.def("set_gradient_policy",
             [](const at::Tensor& leaf, const std::string& policy, bool of_module) {
               set_gradient_policy(leaf, parse_gradient_policy(policy),
                                   of_module ? PolicyOf::Module : PolicyOf::Leaf);
             });
  module.def("reduce_gradients", &reduce_gradients, Unlocked());
}

void bind_local_map(py::module_& module) {
  module.def("local_map", [](const py::function& function, const std::vector<at::Tensor>& inputs,
                             const std::vector<Placements>& out, const std::vector<Placements>& in,
                             const std::vector<Placements>& in_grad) {
    const auto on_tiles = [&](const std::vector<at::Tensor>& tiles) {
      const py::gil_scoped_acquire locked;
      return function(tiles).cast<std::vector<at::Tensor>>();
    };
    const py::gil_scoped_release unlocked;
    return local_map(on_tiles, inputs, out, {in, in_grad});
  });
}

void bind_rules(py::module_& module) {
  module.def("register_sharding", [](const std::string& op, const std::string& rule) {
    register_sharding_text(op, rule);
  });
}

// A log as a context manager: what it listed stays when it is left.
class LogContext {
 public:
  explicit LogContext(World world) : world_(std::move(world)) {}

  void enter() {
    listed_.clear();
    log_ = std::make_unique<CommLog>(world_);
  }
  void leave() {
    listed_ = entries();
    log_.reset();
  }
  std::vector<CommEntry> entries() const { return log_ ? log_->entries() : listed_; }
  std::string text() const {
    std::string lines;
    for (const CommEntry& entry : entries()) lines += to_string(entry) + "\n";
    return lines;
  }

 private:
  World world_;
  std::unique_ptr<CommLog> log_;
  std::vector<CommEntry> listed_;
};

py::object reduction_of(const CommEntry& entry) {
  if (!entry.reduction) return py::none();
  return py::cast(std::string(name_of(*entry.reduction)));
}

void bind_log(py::module_& module) {
  py::class_<CommEntry>(module, "CommEntry", "One collective, send or recv of this rank.")
      .def_property_readonly(
          "kind", [](const CommEntry& entry) { return std::string(name_of(entry.kind)); })
      .def_readonly("axis", &CommEntry::axis)
      .def_readonly("ranks", &CommEntry::ranks)
      .def_readonly("bytes", &CommEntry::bytes)
      .def_property_readonly("reduction", reduction_of)
      .def_readonly("op", &CommEntry::op)
      .def_readonly("seconds", &CommEntry::seconds)
      .def("__repr__", [](const CommEntry& entry) { return to_string(entry); });
  py::class_<LogContext>(module, "CommLog")
      .def(py::init<World>())
      .def("__enter__",
           [](py::object self) {
             self.cast<LogContext&>().enter();
             return self;
           })
      .def("__exit__", [](LogContext& self, const py::args&) { self.leave(); })
      .def("entries", &LogContext::entries)
      .def("__len__", [](const LogContext& self) { return self.entries().size(); })
      .def("__str__", &LogContext::text);
}

// How the calls of an op were carried out, of those that the world remembers. None if the world
// remembers none of the op's own: libtorch made it of others, or it is a matter of each call.
std::vector<std::string> ways_of(const World& world, const std::string& name,
                                 const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op) throw UsageError("there is no operator " + in_quotes(name + "." + overload));
  const std::set<std::string_view> ways =
      world.part<DecisionCache>().ways(operator_table().entry(*op).index);
  return {ways.begin(), ways.end()};
}

void bind_decisions(py::module_& module) {
  module.def("ways_of", ways_of);
  module.def("decision_count",
             [](const World& world) { return world.part<DecisionCache>().size(); });
  module.def("forget_decisions", [](const World& world) { world.part<DecisionCache>().forget(); });
}

}  // namespace
}  // namespace tegula::python

PYBIND11_MODULE(_tegula, module) {
  using namespace tegula::python;
  bind_errors(module);
  bind_placements(module);
  bind_mesh(module);
  bind_world(module);
  bind_tensors(module);
  bind_factories(module);
  bind_guards(module);
  bind_lanes(module);
  bind_gradients(module);
  bind_local_map(module);
  bind_rules(module);
  bind_log(module);
  bind_decisions(module);
}
