// What a rank sends, and how calls were carried out.
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.h"
#include "tegula/base/text.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/decision_cache.h"
#include "tegula/families/families.h"

namespace tegula::python {

using namespace inner;

namespace {

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

void bind_log(py::module_& module) {
  bind_decisions(module);
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

}  // namespace tegula::python
