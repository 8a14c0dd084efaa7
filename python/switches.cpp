// Scoped switches.
#include <memory>
#include <utility>

#include "bindings.h"
#include "tegula/payload/guards.h"

namespace tegula::python {

namespace {

template <class Guard>
class Switch final : public GuardContext<Guard> {
 private:
  std::unique_ptr<Guard> make() const override { return std::make_unique<Guard>(); }
};

class BuildContext final : public GuardContext<BuildDistributed> {
 public:
  BuildContext(DeviceMesh mesh, BuildDistributed::PlacementsFor placements)
      : mesh_(std::move(mesh)), placements_(std::move(placements)) {}

 private:
  std::unique_ptr<BuildDistributed> make() const override {
    return std::make_unique<BuildDistributed>(mesh_, placements_);
  }
  DeviceMesh mesh_;
  BuildDistributed::PlacementsFor placements_;
};

using PlacementsForSizes = std::function<Placements(const Sizes& shape)>;

}  // namespace

void bind_switches(py::module_& module) {
  bind_context<Switch<ImplicitReplication>>(
      module, "implicit_replication",
      "While it is entered, plain tensors among distributed ones count as replicated.")
      .def(py::init<>());
  bind_context<Switch<StrictMode>>(module, "strict_mode",
                                   "While it is entered, an op that would move data unasked is a "
                                   "UsageError that names the op and the plan.")
      .def(py::init<>());
  bind_context<Switch<KeepGathered>>(module, "keep_gathered",
                                     "While it is entered, parameters of a fully sharded module "
                                     "that were gathered stay gathered until they are written.")
      .def(py::init<>());
  bind_context<BuildContext>(module, "build_distributed",
                             "While it is entered, floating-point tensors that torch makes from "
                             "nothing are distributed, so that no rank ever holds a whole one: "
                             "placed as the function of their shape says.")
      .def(py::init([](const DeviceMesh& mesh, const PlacementsForSizes& placements) {
             return std::make_unique<BuildContext>(
                 mesh, [placements](at::IntArrayRef shape) { return placements(shape.vec()); });
           }),
           py::arg("mesh"), py::arg("placements"));
}

}  // namespace tegula::python
