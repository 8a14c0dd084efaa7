// The ranks of a job, as processes or as threads, and the seed that they share.
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings.h"
#include "tegula/base/error.h"
#include "tegula/comm/lane.h"
#include "tegula/comm/thread_seed.h"
#include "tegula/comm/waiting.h"
#include "tegula/comm/world.h"
#include "tegula/random/random.h"

namespace tegula::python {

namespace {

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

// The interpreter's lock, which ranks that are threads share.
class LetGoOfInterpreter final : public inner::comm::LetGo {
 public:
  LetGoOfInterpreter() : state_(PyEval_SaveThread()) {}
  ~LetGoOfInterpreter() override { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* state_;
};

std::unique_ptr<inner::comm::LetGo> let_go_of_interpreter() {
  if (!Py_IsInitialized() || !PyGILState_Check()) return nullptr;
  return std::make_unique<LetGoOfInterpreter>();
}

// The body gets the world of a rank and says what went wrong; nothing: all went well.
void run_as_threads(int ranks, const py::function& body, std::string backend,
                    std::optional<std::chrono::milliseconds> timeout) {
  const auto on_rank = [&body](World& world) {
    std::optional<std::string> failure;
    {
      const py::gil_scoped_acquire locked;
      failure = body(world).cast<std::optional<std::string>>();
    }
    if (failure) throw std::runtime_error(*failure);
  };
  const py::gil_scoped_release unlocked;
  run_ranks(ranks, on_rank, {.backend = std::move(backend), .timeout = timeout});
}

Group group_of_ranks(const World& world, const std::optional<std::vector<int>>& ranks,
                     std::string name) {
  if (!ranks) return world.group();
  return world.group(*ranks, {.name = std::move(name), .backend = {}, .timeout = {}});
}

// What the program caught is known here as it is to C++ in a catch block: a peer's or a link's
// failure, or one of this rank's own.
void recover(const World& world, const std::optional<std::string>& of_peer,
             const std::optional<std::string>& own) {
  try {
    if (of_peer) throw CommError(*of_peer);
    if (own) throw std::runtime_error(*own);
  } catch (const std::exception&) {
    return world.recover();
  }
  world.recover();
}

class LaneContext final : public GuardContext<Lane> {
 public:
  explicit LaneContext(std::string name) : name_(std::move(name)) {}

 private:
  std::unique_ptr<Lane> make() const override { return std::make_unique<Lane>(name_); }
  std::string name_;
};

}  // namespace

void bind_world(py::module_& module) {
  inner::comm::set_lock_of_threads(let_go_of_interpreter);
  py::class_<World>(module, "World", "The ranks of a job.")
      .def_static("from_env", world_from_env, py::arg("backend"), py::arg("timeout"), Unlocked())
      .def_static("fake", &World::fake, py::arg("size"), py::arg("rank"))
      .def_property_readonly("rank", &World::rank)
      .def_property_readonly("size", &World::size)
      .def_property_readonly("local_rank", &World::local_rank)
      .def_property_readonly("local_size", &World::local_size)
      .def_property_readonly("epoch", &World::epoch)
      .def("recover", recover, py::arg("of_peer") = py::none(), py::arg("own") = py::none(),
           Unlocked())
      .def("mesh", mesh_of_world, py::arg("axes"), py::arg("ranks"), py::arg("device_type"))
      .def(
          "group", group_of_ranks, py::arg("ranks") = py::none(), py::arg("name") = "",
          "The group of these ranks, in this order, this one among them; of all if none are given.",
          Unlocked())
      .def(
          "group_along",
          [](const World& world, const DeviceMesh& mesh, const std::string& axis) {
            return world.group(mesh, axis);
          },
          "This rank's group along an axis of a mesh.", Unlocked());
  module.def("world_of_mesh", &World::of);
  module.def("run_ranks", run_as_threads);
  bind_context<LaneContext>(module, "lane",
                            "While it is entered, what this thread sends meets what the other "
                            "ranks send on the lane of this name, so that several threads of a "
                            "rank may communicate at the same time.")
      .def(py::init<std::string>());
  module.def("manual_seed", &manual_seed);
  module.def("thread_seed",
             [](const World& world) { return world.part<inner::comm::ThreadSeed>().word; });
  module.def("set_thread_seed", [](const World& world, std::uint64_t word) {
    world.part<inner::comm::ThreadSeed>().word = word;
  });
  module.def("rng_state", [](const World& world) {
    const RNGState state = rng_state(world);
    return std::make_tuple(state.seed, state.draws);
  });
  using Draws = std::map<std::uint64_t, std::uint64_t>;
  module.def("set_rng_state", [](const World& world, std::uint64_t seed, const Draws& draws) {
    set_rng_state(world, {.seed = seed, .draws = draws});
  });
}

}  // namespace tegula::python
