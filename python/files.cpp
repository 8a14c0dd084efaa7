// Checkpoints, and weights of others. What a state consists of is said in Python (tegula/_state.py,
// tegula/_optimizer_state.py); files are written and read in C++.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/hf_weights.h"
#include "tegula/io/optimizer_state.h"
#include "tegula/io/state_part.h"

namespace tegula::python {

using namespace inner;

namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
using Values = std::vector<std::pair<std::string, StateValue>>;
using Names = std::vector<std::string>;
using Setters =
    std::vector<std::tuple<std::string, StateValue, std::function<void(const StateValue&)>>>;
using Finishers = std::vector<std::pair<std::string, std::function<void()>>>;

// What tegula._state.Refused says, so that all ranks throw it. Other exceptions go on as they are.
void rethrow(const py::error_already_set& error) {
  const py::object value = error.value();
  if (!py::hasattr(value, "sentence")) throw error;
  UsageError refusal(value.attr("sentence").cast<std::string>());
  using Facts = std::vector<std::pair<std::string, std::string>>;
  for (const auto& [name, fact] : value.attr("facts").cast<Facts>()) {
    std::move(refusal).fact(name, fact);
  }
  throw std::move(refusal).hint(value.attr("hint").cast<std::string>());
}

// A list of things in Python.
class PythonPart final : public StatePart {
 public:
  explicit PythonPart(py::object listing) : listing_(std::move(listing)) {}

  void list_saved(Saved& saved) const override {
    const py::gil_scoped_acquire locked;
    try {
      const auto [tensors, values, own] =
          listing_.attr("saved")().cast<std::tuple<Tensors, Values, Values>>();
      for (const auto& [name, tensor] : tensors) saved.tensors.push_back({name, tensor});
      for (const auto& [name, value] : values) saved.values.push_back({name, value});
      for (const auto& [name, value] : own) saved.per_rank.push_back({name, value});
    } catch (const py::error_already_set& error) {
      rethrow(error);
    }
  }

  void list_wants(const Present& present, Wants& wants) const override {
    const py::gil_scoped_acquire locked;
    try {
      const auto [tensors, values, known, problems, finish] =
          listing_.attr("wanted")(tensors_in(present), present.values)
              .cast<std::tuple<Tensors, Setters, Names, Names, Finishers>>();
      for (const auto& [name, tensor] : tensors) wants.tensors.push_back({name, tensor});
      for (const auto& [name, like, set] : values) wants.values.push_back({name, like, set});
      wants.known.insert(wants.known.end(), known.begin(), known.end());
      wants.problems.insert(wants.problems.end(), problems.begin(), problems.end());
      for (const auto& [name, run] : finish) wants.finish.push_back({name, run});
    } catch (const py::error_already_set& error) {
      rethrow(error);
    }
  }

 private:
  // Shape and dtype by name; None for one that torch lacks.
  static py::dict tensors_in(const Present& present) {
    py::dict tensors;
    for (const auto& [name, tensor] : present.tensors) {
      const std::optional<DType> dtype = tensor->dtype->dtype;
      std::optional<at::ScalarType> type;
      if (dtype && libtorch_has(*dtype)) type = scalar_type_of(*dtype);
      tensors[py::str(name)] = py::make_tuple(tensor->shape, type);
    }
    return tensors;
  }

  py::object listing_;
};

State state_of(const World& world, const py::object& listing, const Names& random) {
  State state(world);
  state.add(std::make_shared<PythonPart>(listing));
  for (const std::string& name : random) state.add_random(name);
  return state;
}

SaveOptions save_options(std::int64_t step, std::int64_t keep, std::uint64_t most_file_bytes,
                         std::uint64_t chunk_bytes) {
  return {
      .step = step, .keep = keep, .most_file_bytes = most_file_bytes, .chunk_bytes = chunk_bytes};
}

void bind_saving(py::module_& module) {
  module.def("save", [](const World& world, const std::string& folder, const py::object& listing,
                        const Names& random, std::int64_t step, std::int64_t keep,
                        std::uint64_t most_file_bytes, std::uint64_t chunk_bytes) {
    const State state = state_of(world, listing, random);
    const py::gil_scoped_release unlocked;
    save(folder, state, save_options(step, keep, most_file_bytes, chunk_bytes));
  });
  // Its thread may let go of tensors that Python knows, for which it wants the lock.
  struct WaitUnlocked {
    void operator()(AsyncSaver* saver) const {
      const py::gil_scoped_release unlocked;
      delete saver;
    }
  };
  py::class_<AsyncSaver, std::unique_ptr<AsyncSaver, WaitUnlocked>>(module, "AsyncSaver")
      .def(py::init<std::uint64_t>())
      .def("save",
           [](AsyncSaver& saver, const World& world, const std::string& folder,
              const py::object& listing, const Names& random, std::int64_t step, std::int64_t keep,
              std::uint64_t most_file_bytes, std::uint64_t chunk_bytes) {
             const State state = state_of(world, listing, random);
             const py::gil_scoped_release unlocked;
             saver.save(folder, state, save_options(step, keep, most_file_bytes, chunk_bytes));
           })
      .def("wait", &AsyncSaver::wait, Unlocked());
}

void bind_loading(py::module_& module) {
  module.def(
      "load",
      [](const World& world, const std::string& folder, const py::object& listing,
         const Names& random, std::optional<std::int64_t> step, bool strict, const Names& only,
         const std::vector<std::pair<std::string, std::string>>& renames, bool cast, bool verify) {
        const State state = state_of(world, listing, random);
        const py::gil_scoped_release unlocked;
        const LoadReport report = load(folder, state,
                                       {.step = step,
                                        .strict = strict,
                                        .only = only,
                                        .renames = renames,
                                        .cast = cast,
                                        .verify = verify});
        return std::make_tuple(report.step, report.missing, report.extra);
      });
  module.def("latest", &latest, Unlocked());
  module.def("fresh_state", &fresh_state, Unlocked());
  module.def("place_of", &place_of);
}

using HfTensors = std::vector<std::pair<at::Tensor, Names>>;
using AskedNames = std::vector<std::pair<Names, Names>>;

std::vector<ModuleMember> hf_in_cpp(const HfTensors& members) {
  std::vector<ModuleMember> made;
  for (const auto& [tensor, names] : members) made.push_back({tensor, names});
  return made;
}

std::vector<HfName> hf_in_cpp(const AskedNames& names) {
  std::vector<HfName> made;
  for (const auto& [ours, theirs] : names) made.push_back({ours, theirs});
  return made;
}

void bind_weights(py::module_& module) {
  module.def(
      "load_hf",
      [](const World& world, const HfTensors& members, const std::string& folder,
         const AskedNames& names, const Names& without, const Names& ignored) {
        load_hf_members(hf_in_cpp(members), folder, world,
                        {.names = hf_in_cpp(names), .without = without, .ignored = ignored});
      },
      Unlocked());
  module.def(
      "export_hf",
      [](const World& world, const HfTensors& members, const std::string& folder,
         const AskedNames& names, const Names& without, std::uint64_t most_file_bytes) {
        export_hf_members(
            hf_in_cpp(members), folder, world,
            {.names = hf_in_cpp(names), .without = without, .most_file_bytes = most_file_bytes});
      },
      Unlocked());
}

}  // namespace

void bind_files(py::module_& module) {
  bind_saving(module);
  bind_loading(module);
  bind_weights(module);
}

}  // namespace tegula::python
