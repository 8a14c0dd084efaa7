// Whole modules: what becomes of their parameters and buffers, by placements or by a plan. Python
// says which these are (tegula/_modules.py); where they go is said in C++.
#include <torch/csrc/Exceptions.h>

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "tegula/parallel/members.h"
#include "tegula/tensor/module_members.h"
#include "tegula/tensor/name_patterns.h"

namespace tegula::python {

using namespace inner;

namespace {

using AskedMembers =
    std::vector<std::tuple<at::Tensor, std::vector<std::string>, std::optional<Placements>>>;

std::vector<ModuleMember> in_cpp(AskedMembers members) {
  std::vector<ModuleMember> made;
  for (auto& [tensor, names, asked] : members) {
    made.push_back({std::move(tensor), std::move(names), std::move(asked)});
  }
  return made;
}

MemberKind kind_named(const std::string& kind) {
  if (kind == "table") return MemberKind::Table;
  return kind == "buffer" ? MemberKind::Buffer : MemberKind::Parameter;
}

// Module, name, tensor, kind.
using Standing = std::vector<std::tuple<std::string, std::string, at::Tensor, std::string>>;

std::vector<StandingMember> in_cpp(const Standing& members) {
  std::vector<StandingMember> made;
  for (const auto& [module, name, tensor, kind] : members) {
    made.push_back({module, name, tensor, kind_named(kind)});
  }
  return made;
}

void bind_placing(py::module_& module) {
  module.def("last_matches", &last_matches);
  module.def(
      "distribute_members",
      [](AskedMembers members, const DeviceMesh& mesh, std::optional<std::int64_t> source) {
        distribute_members(in_cpp(std::move(members)), mesh, {.source = source, .order = {}});
      },
      Unlocked());
  module.def(
      "redistribute_members",
      [](AskedMembers members, const DeviceMesh& mesh) {
        redistribute_members(in_cpp(std::move(members)), mesh);
      },
      Unlocked());
  module.def(
      "like_parameter",
      [](const at::Tensor& state, const at::Tensor& parameter) {
        return like_parameter(state, parameter, {});
      },
      Unlocked());
}

void bind_styles(py::module_& module) {
  py::class_<StyledParameter>(module, "StyledParameter", "What a style knows of a parameter.")
      .def(py::init<std::string, at::Tensor, bool, std::int64_t>(), py::arg("name"),
           py::arg("tensor"), py::arg("is_embedding") = false, py::arg("ranks") = 1)
      .def_readonly("name", &StyledParameter::name)
      .def_readonly("tensor", &StyledParameter::tensor)
      .def_readonly("is_embedding", &StyledParameter::is_embedding)
      .def_readonly("ranks", &StyledParameter::ranks);
  py::class_<Style>(module, "Style",
                    "Where the parameters of a module lie along an axis: a name, and a function "
                    "from a StyledParameter to a placement.")
      .def(py::init<std::string, Style::Place>(), py::arg("name"), py::arg("place"))
      .def_property_readonly("name", &Style::name)
      .def("place", &Style::place)
      .def("__repr__", &Style::name);
  module.def("style_named", &style_named);
  module.def("parse_plan", &parse_plan);
  module.def("placed", &placed, Unlocked());
}

// One word for all axes.
GradientReduction reduction_named(const std::string& word) {
  const GradientPolicy policy = parse_gradient_policy(word);
  if (policy.axes().empty()) return policy.otherwise();
  throw UsageError("a reduction is one word for all axes of the mesh")
      .fact("reduction", word)
      .hint("now, async or hold; set_gradient_policy takes one per axis");
}

// What Python raised, as torch's bindings know it: it leaves backward as what it is.
template <class Step>
auto raising(Step step) {
  try {
    return step();
  } catch (py::error_already_set& error) {
    const py::gil_scoped_acquire locked;
    error.restore();
    python_error carried;
    carried.persist();
    throw carried;
  }
}

BucketHook raising_in_python(const BucketHook& hook) {
  if (!hook) return nullptr;
  return [hook](const GradientBucket& bucket) -> std::function<void()> {
    const std::function<void()> end = raising([&] { return hook(bucket); });
    if (!end) return nullptr;
    return [end] { raising(end); };
  };
}

void bind_buckets(py::module_& module) {
  py::class_<GradientBucket>(module, "GradientBucket",
                             "Gradients of one backward pass that are reduced together; what a "
                             "hook of tegula.replicate is called with.")
      .def_readonly("flat", &GradientBucket::flat,
                    "This rank's gradients one after the other: plain, one dim. For the hook to "
                    "write to.")
      .def_readonly("gradients", &GradientBucket::gradients,
                    "Views of flat, in the gradients' shapes.")
      .def_readonly("leaves", &GradientBucket::leaves, "The parameter of each.")
      .def_readonly("group", &GradientBucket::group, "The ranks over which the sum goes.");
  module.attr("BUCKET_BYTES") = ReplicateOptions::kBucketBytes;
}

void bind_plans(py::module_& module) {
  module.def(
      "parallelize_members",
      [](const Standing& members, const DeviceMesh& mesh, const ParallelPlan& plan,
         std::optional<std::int64_t> source) {
        parallelize_members(in_cpp(members), mesh, plan, {.source = source, .order = {}});
      },
      Unlocked());
  module.def(
      "explain_members",
      [](const ParallelPlan& plan, const Standing& members, const DeviceMesh& mesh,
         const std::optional<ExplainedStep>& step) {
        return step ? explain_members(plan, in_cpp(members), mesh, *step)
                    : explain_members(plan, in_cpp(members), mesh);
      },
      Unlocked());
  module.def(
      "replicate_members",
      [](const Standing& members, const DeviceMesh& mesh, const std::string& policy,
         std::optional<at::ScalarType> wire, std::int64_t bucket_bytes, const BucketHook& hook) {
        replicate_members(in_cpp(members), mesh,
                          {.reduction = reduction_named(policy),
                           .wire = wire,
                           .bucket_bytes = bucket_bytes,
                           .hook = raising_in_python(hook)});
      },
      Unlocked());
  module.def(
      "fully_shard_members",
      [](const Standing& members, const DeviceMesh& mesh, const std::vector<Placements>& roles,
         const std::string& layout, std::int64_t multiple, std::int64_t most_bytes,
         const std::string& policy, std::optional<at::ScalarType> wire, bool prefetches) {
        using Options = FullyShardOptions;
        fully_shard_members(
            in_cpp(members), mesh, {roles.at(0), roles.at(1), roles.at(2)},
            {.layout = layout == "owned" ? Options::Layout::Owned : Options::Layout::Even,
             .multiple = multiple,
             .most_bytes = most_bytes,
             .reduction = reduction_named(policy),
             .wire = wire,
             .prefetch = prefetches ? Options::Prefetch::Next : Options::Prefetch::Off});
      },
      Unlocked());
}

}  // namespace

void bind_modules(py::module_& module) {
  bind_placing(module);
  bind_styles(module);
  bind_buckets(module);
  bind_plans(module);
}

}  // namespace tegula::python
