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
#include "tegula/parallel/members.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/slices.h"
#include "tegula/tensor/module.h"
#include "tegula/tensor/name_patterns.h"

namespace tegula {

using namespace inner;

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

// Each tensor once.
std::vector<Member> distinct(const std::vector<StandingMember>& standing) {
  std::vector<Member> members;
  std::map<c10::TensorImpl*, std::size_t> places;  // a tied parameter is one
  for (const StandingMember& one : standing) {
    const auto [place, is_new] =
        places.try_emplace(one.tensor.unsafeGetTensorImpl(), members.size());
    if (is_new) {
      const StyledParameter parameter{one.name, one.tensor, one.kind == MemberKind::Table};
      members.push_back({one.full_name(), {}, parameter, one.kind == MemberKind::Buffer});
    }
    add_name(members[place->second].known_as, one.full_name());
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

bool is_named_by(const Member& member, const std::string& pattern) {
  return std::ranges::any_of(member.known_as,
                             [&](const std::string& name) { return matches(pattern, name); });
}

// A pattern that is of no use, by itself or beside the later ones, is a mistake. What a style
// refuses may well be nothing.
void check_patterns(const ParallelPlan& plan, const std::vector<Member>& members,
                    Mistakes& mistakes) {
  std::vector<std::vector<std::string>> names;
  for (const Member& member : members) names.push_back(member.known_as);
  std::vector<std::string> later;
  std::vector<std::string> found;  // from the last to the first
  for (std::size_t k = plan.size(); k-- > 0;) {
    const auto& [pattern, style] = plan[k];
    std::vector<std::string> from_here{pattern};
    from_here.insert(from_here.end(), later.begin(), later.end());
    try {
      if (style.name() != Refused().name()) inner::last_matches(from_here, names);
      later = std::move(from_here);
    } catch (const UsageError& error) {
      found.push_back(one_line(error));
    }
  }
  for (auto one = found.rbegin(); one != found.rend(); ++one) mistakes.add("pattern", *one);
}

// The place in the plan of the style that counts for it.
std::optional<std::size_t> style_of(const ParallelPlan& plan, const Member& member) {
  for (std::size_t k = plan.size(); k-- > 0;) {
    if (is_named_by(member, plan[k].first)) return k;
  }
  return std::nullopt;
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

std::vector<Planned> planned(const ParallelPlan& plan, const std::vector<StandingMember>& standing,
                             const DeviceMesh& mesh) {
  const std::size_t axis = axis_in_root(mesh);
  const DeviceMesh root = mesh.root();
  const std::vector<Member> members = distinct(standing);
  Mistakes mistakes;
  check_patterns(plan, members, mistakes);
  std::vector<Planned> all;
  for (Member member : distinct(standing)) {
    member.parameter.ranks = mesh.axes()[0].size;
    const std::optional<std::size_t> named = style_of(plan, member);
    const bool has_style = named && !member.is_buffer;
    const Style style = has_style ? plan[*named].second : Replicated();
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

std::vector<StandingMember> inner::members_in(const torch::nn::Module& module) {
  std::vector<StandingMember> members;
  const auto add = [&](const std::string& name, const torch::nn::Module& of) {
    const bool is_table = dynamic_cast<const torch::nn::EmbeddingImpl*>(&of) != nullptr;
    for (const auto& one : of.named_parameters(/*recurse=*/false)) {
      if (!one.value().defined()) continue;
      members.push_back(
          {name, one.key(), one.value(), is_table ? MemberKind::Table : MemberKind::Parameter});
    }
    for (const auto& one : of.named_buffers(/*recurse=*/false)) {
      if (!one.value().defined()) continue;
      members.push_back({name, one.key(), one.value(), MemberKind::Buffer});
    }
  };
  add("", module);  // it may lie on the stack, where libtorch does not list it
  for (const auto& item : module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    add(item.key(), *item.value());
  }
  return members;
}

void inner::parallelize_members(const std::vector<StandingMember>& members, const DeviceMesh& mesh,
                                const ParallelPlan& plan, const DistributeOptions& options) {
  const DeviceMesh root = mesh.root();
  for (const Planned& one : planned(plan, members, mesh)) {
    at::Tensor tensor = one.member.parameter.tensor;
    const Placements& placements = one.spec->placements();
    if (!is_dtensor(tensor)) {
      tensor.set_data(distribute_tensor(tensor.detach(), root, placements, options));
    } else if (!(spec_of(tensor) == *one.spec)) {
      inner::set_data_keeping_policies(tensor, redistribute(tensor.detach(), placements));
    }
  }
}

std::string inner::explain_members(const ParallelPlan& plan,
                                   const std::vector<StandingMember>& members,
                                   const DeviceMesh& mesh) {
  Table table({"parameter", "style", "placed", "whole bytes", "bytes per rank"});
  std::int64_t whole = 0, held = 0;
  for (const Planned& one : planned(plan, members, mesh)) {
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

void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const DistributeOptions& options) {
  parallelize_members(members_in(module), mesh, plan, options);
}

std::string explain(const ParallelPlan& plan, const torch::nn::Module& module,
                    const DeviceMesh& mesh) {
  return explain_members(plan, members_in(module), mesh);
}

at::Tensor placed(const at::Tensor& tensor, std::string_view axis, const Placement& placement) {
  if (!is_dtensor(tensor)) return tensor;
  Placements placements = placements_of(tensor);
  placements[mesh_of(tensor).axis_index(axis)] = placement;
  return redistribute(tensor, placements);
}

}  // namespace tegula
