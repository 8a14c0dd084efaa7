// The idea: a plan becomes placements by name, and these are distribute_module's business.
#include "tegula/parallel/parallelize_module.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "tegula/base/error.h"
#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/slices.h"
#include "tegula/tensor/module.h"
#include "tegula/tensor/name_patterns.h"

namespace tegula {
namespace {

// A parameter or buffer, and all that is known of it.
struct Member {
  std::string name;                   // the first of its names
  std::vector<std::string> known_as;  // its names, and those of the modules that it is in
  StyledParameter parameter;
  bool is_buffer = false;
};

// "blocks.0.up.weight" -> itself, "blocks.0.up", "blocks.0", "blocks"
void add_name(std::vector<std::string>& names, std::string name) {
  while (true) {
    names.push_back(name);
    const std::size_t dot = name.rfind('.');
    if (dot == std::string::npos) return;
    name.resize(dot);
  }
}

std::vector<Member> members_of(const torch::nn::Module& module) {
  std::vector<Member> members;
  std::map<c10::TensorImpl*, std::size_t> places;  // a tied parameter is one
  const auto add = [&](const std::string& owner, const std::string& name, const at::Tensor& tensor,
                       const torch::nn::Module& of, bool is_buffer) {
    if (!tensor.defined()) return;
    const std::string full = owner.empty() ? name : owner + "." + name;
    const auto [place, is_new] = places.try_emplace(tensor.unsafeGetTensorImpl(), members.size());
    const bool is_table = dynamic_cast<const torch::nn::EmbeddingImpl*>(&of) != nullptr;
    if (is_new) members.push_back({full, {}, {name, tensor, is_table}, is_buffer});
    add_name(members[place->second].known_as, full);
  };
  const auto add_all = [&](const std::string& name, const torch::nn::Module& of) {
    for (const auto& one : of.named_parameters(/*recurse=*/false)) {
      add(name, one.key(), one.value(), of, false);
    }
    for (const auto& one : of.named_buffers(/*recurse=*/false)) {
      add(name, one.key(), one.value(), of, true);
    }
  };
  add_all("", module);  // it may lie on the stack, where libtorch does not list it
  for (const auto& item : module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    add_all(item.key(), *item.value());
  }
  return members;
}

// Where the axis is among those of the root.
std::size_t axis_in_root(const DeviceMesh& mesh) {
  const DeviceMesh root = mesh.root();
  if (mesh.ndim() != 1) {
    throw UsageError("a plan is about one axis")
        .fact("mesh", to_string(mesh))
        .hint("slice it, mesh[\"tp\"], and call parallelize_module for each axis");
  }
  const auto& axes = root.axes();
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis].name == mesh.axes()[0].name && root[axes[axis].name] == mesh) return axis;
  }
  throw UsageError("a plan is about an axis of the mesh, not about joined or split ones")
      .fact("mesh", to_string(mesh))
      .fact("root", to_string(root))
      .hint("make the mesh with the axes that it is to have");
}

struct Planned {
  Member member;
  std::string style;
  std::optional<DTensorSpec> spec;  // none: something is wrong
};

// All mistakes of one plan.
class Mistakes {
 public:
  void add(const std::string& where, const std::string& what) { found_.emplace_back(where, what); }
  void throw_if_any() const {
    if (found_.empty()) return;
    UsageError error(found_.size() == 1 ? "a plan does not fit the module"
                                        : "a plan does not fit the module, in " +
                                              counted(static_cast<std::int64_t>(found_.size()),
                                                      "place", "places"));
    for (const auto& [where, what] : found_) std::move(error).fact(where, what);
    throw std::move(error).hint("patterns are those of parallel/styles.h; explain() shows a plan");
  }

 private:
  std::vector<std::pair<std::string, std::string>> found_;
};

std::string one_line(const UsageError& error) {
  std::string text = error.sentence();
  for (const auto& [name, value] : error.facts()) text += "; " + name + " " + value;
  return text;
}

// The place in the plan of each member's style; the unused patterns are mistakes.
std::vector<std::optional<std::size_t>> styles_of(const ParallelPlan& plan,
                                                  const std::vector<Member>& members,
                                                  Mistakes& mistakes) {
  std::vector<std::vector<std::string>> names;
  for (const Member& member : members) names.push_back(member.known_as);
  std::vector<std::string> patterns;
  for (const auto& [pattern, style] : plan) patterns.push_back(pattern);
  for (std::size_t k = 0; k < patterns.size(); ++k) {
    const std::vector<std::string> rest(patterns.begin() + static_cast<std::ptrdiff_t>(k),
                                        patterns.end());
    try {
      inner::last_matches({patterns[k]}, names);
    } catch (const UsageError& error) {
      mistakes.add("pattern", one_line(error));
    }
  }
  mistakes.throw_if_any();  // the rest would follow from these
  return inner::last_matches(patterns, names);
}

DTensorSpec spec_for(const Member& member, const Placement& along, const DeviceMesh& root,
                     std::size_t axis) {
  const at::Tensor& tensor = member.parameter.tensor;
  Placements placements(root.ndim(), Replicate());
  if (is_dtensor(tensor)) {
    const DTensorSpec now = spec_of(tensor);
    if (!(now.mesh() == root)) {
      throw UsageError("it is on another mesh").fact("is", to_string(now));
    }
    placements = now.placements();
    if (!is_replicate(placements[axis]) && !(placements[axis] == along)) {
      throw UsageError("it is placed along the axis already").fact("is", to_string(now));
    }
  }
  placements[axis] = along;
  const TensorMeta meta = is_dtensor(tensor) ? spec_of(tensor).meta() : dense(meta_of(tensor));
  return {root, placements, meta};
}

std::vector<Planned> planned(const ParallelPlan& plan, const torch::nn::Module& module,
                             const DeviceMesh& mesh) {
  const std::size_t axis = axis_in_root(mesh);
  const DeviceMesh root = mesh.root();
  const std::vector<Member> members = members_of(module);
  Mistakes mistakes;
  const std::vector<std::optional<std::size_t>> styles = styles_of(plan, members, mistakes);
  std::vector<Planned> all;
  for (std::size_t k = 0; k < members.size(); ++k) {
    const Member& member = members[k];
    const bool has_style = styles[k] && !member.is_buffer;
    const Style style = has_style ? plan[*styles[k]].second : Replicated();
    Planned one{member, has_style ? style.name() : "", std::nullopt};
    try {
      one.spec = spec_for(member, style.place(member.parameter), root, axis);
    } catch (const UsageError& error) {
      mistakes.add(member.name, one_line(error));
    }
    all.push_back(std::move(one));
  }
  mistakes.throw_if_any();
  return all;
}

}  // namespace

void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const DistributeOptions& options) {
  const DeviceMesh root = mesh.root();
  for (const Planned& one : planned(plan, module, mesh)) {
    at::Tensor tensor = one.member.parameter.tensor;
    const Placements& placements = one.spec->placements();
    if (!is_dtensor(tensor)) {
      tensor.set_data(distribute_tensor(tensor.detach(), root, placements, options));
    } else if (!(spec_of(tensor) == *one.spec)) {
      inner::set_data_keeping_policies(tensor, redistribute(tensor.detach(), placements));
    }
  }
}

std::string explain(const ParallelPlan& plan, const torch::nn::Module& module,
                    const DeviceMesh& mesh) {
  Table table({"parameter", "style", "placed", "whole bytes", "bytes per rank"});
  std::int64_t whole = 0, held = 0;
  for (const Planned& one : planned(plan, module, mesh)) {
    const DTensorSpec& spec = *one.spec;
    const std::int64_t size = size_of(spec.meta().dtype());
    std::int64_t most = 0;
    for (std::int64_t place = 0; place < spec.mesh().size(); ++place) {
      std::int64_t count = 1;
      for (const std::int64_t extent : local_shape(spec, spec.mesh().coordinate_at(place))) {
        count *= extent;
      }
      most = std::max(most, count * size);
    }
    whole += spec.meta().numel() * size;
    held += most;
    table.add({one.member.name, one.style.empty() ? "-" : one.style, to_string(spec.placements()),
               in_thousands(spec.meta().numel() * size), in_thousands(most)});
  }
  table.add({"all", "", "", in_thousands(whole), in_thousands(held)});
  std::ostringstream out;
  table.print(out);
  return out.str();
}

at::Tensor placed(const at::Tensor& tensor, std::string_view axis, const Placement& placement) {
  if (!is_dtensor(tensor)) return tensor;
  Placements placements = placements_of(tensor);
  placements[mesh_of(tensor).axis_index(axis)] = placement;
  return redistribute(tensor, placements);
}

}  // namespace tegula
