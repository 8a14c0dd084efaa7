// The idea: a parameter is placed as its optimizer state is, and a policy on its payload says that
// ops see it whole (dispatch/gather_for_use.h). Gradients are reduced to where their leaf is, as
// they always are; so nothing is left to do but to place and to say so.
#include "tegula/parallel/fully_shard.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/parallel/alike.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

using Layout = FullyShardOptions::Layout;

// An axis of the slice: where it is among those of the root, and the roles along it.
struct RoleAxis {
  std::size_t axis;
  std::string name;
  std::int64_t size;
  Placement parameters, gradients, state;
  bool is_cut() const { return as_shard(state) != nullptr; }
};

// True if all of them are gathered, false if none is. UsageError if some are.
bool is_whole(const std::vector<RoleAxis>& axes, Placement RoleAxis::* role, const char* name) {
  std::size_t cut = 0, whole = 0;
  for (const RoleAxis& axis : axes) {
    const Placement& placement = axis.*role;
    if (!is_replicate(placement) && !(placement == axis.state)) {
      throw UsageError(std::string("the ") + name + " of a role are cut otherwise than the state")
          .fact("axis", axis.name)
          .fact(name, to_string(placement))
          .fact("state", to_string(axis.state))
          .hint("Replicate, or as the state");
    }
    if (!axis.is_cut()) continue;
    ++cut;
    if (is_replicate(placement)) ++whole;
  }
  if (whole != 0 && whole != cut) {
    throw UsageError(std::string("the ") + name +
                     " of a role are whole over one axis that cuts the state, and not over another")
        .hint("Replicate over all axes that cut the state, or over none of them");
  }
  return whole != 0;
}

std::vector<RoleAxis> role_axes(const DeviceMesh& mesh, const ShardedRoles& roles) {
  const DeviceMesh root = mesh.root();
  for (const Placements* role : {&roles.parameters, &roles.gradients, &roles.state}) {
    if (role->size() == mesh.ndim()) continue;
    throw UsageError("a role needs one placement per axis of the mesh")
        .fact("mesh", to_string(mesh))
        .fact("role", to_string(*role))
        .hint("slice the mesh, mesh[\"dp\"]; hybrid() is for two axes");
  }
  std::vector<RoleAxis> axes;
  for (std::size_t k = 0; k < mesh.ndim(); ++k) {
    const MeshAxis& axis = mesh.axes()[k];
    const Shard* shard = as_shard(roles.state[k]);
    if (owed_reduction(roles.state[k]) || (shard && !shard->cut().is_even())) {
      throw UsageError("the state of a role is neither replicated nor cut evenly")
          .fact("state", to_string(roles.state[k]))
          .hint("the options say how a dim is cut: FullyShardOptions::layout, multiple");
    }
    const auto& all = root.axes();
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const MeshAxis& one) { return one.name == axis.name; });
    if (same == all.end() || same->size != axis.size) {
      throw UsageError("fully_shard is about axes of the mesh, not about joined or split ones")
          .fact("mesh", to_string(mesh))
          .fact("root", to_string(root))
          .hint("make the mesh with the axes that it is to have");
    }
    axes.push_back({static_cast<std::size_t>(same - all.begin()), axis.name, axis.size,
                    roles.parameters[k], roles.gradients[k], roles.state[k]});
  }
  return axes;
}

// The lengths of the pieces into which earlier axes cut a dim, in the order that cuts have them in.
std::vector<std::int64_t> piece_lengths(const DTensorSpec& spec, std::size_t dim) {
  const DimCut& cut = spec.dim_cuts()[dim];
  std::vector<std::int64_t> lengths;
  Coordinate at(spec.mesh().ndim(), 0);
  const std::function<void(std::size_t)> visit = [&](std::size_t k) {
    if (k == cut.axes().size()) {
      lengths.push_back(cut.local_size(at));
      return;
    }
    const std::size_t axis = cut.axes()[k].axis;
    for (at[axis] = 0; at[axis] < spec.mesh().axes()[axis].size; ++at[axis]) visit(k + 1);
    at[axis] = 0;
  };
  visit(0);
  return lengths;
}

std::vector<std::int64_t> in_multiples(std::int64_t length, std::int64_t ranks, std::int64_t of) {
  const std::int64_t units = (length + of - 1) / of;
  const std::int64_t rows = (units + ranks - 1) / ranks * of;
  std::vector<std::int64_t> sizes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back(std::clamp(length - rank * rows, std::int64_t{0}, rows));
  }
  return sizes;
}

// The cut of a dim by one more axis.
Cut cut_further(const DTensorSpec& spec, std::size_t dim, std::int64_t ranks,
                const FullyShardOptions& options, std::int64_t owner) {
  if (options.layout == Layout::Even && options.multiple == 1) return {};
  std::vector<std::vector<std::int64_t>> sizes;
  for (const std::int64_t length : piece_lengths(spec, dim)) {
    if (options.layout == Layout::Owned) {
      sizes.emplace_back(ranks, 0);
      sizes.back()[static_cast<std::size_t>(owner)] = length;
    } else {
      sizes.push_back(in_multiples(length, ranks, options.multiple));
    }
  }
  return Cut::ragged_per_piece(std::move(sizes));
}

// The spec with one more axis, the last to cut.
DTensorSpec cut_by(const DTensorSpec& spec, const RoleAxis& axis, const FullyShardOptions& options,
                   std::int64_t owner) {
  const Shard* asked = as_shard(axis.state);
  const std::int64_t dim = asked->dim() < 0 ? asked->dim() + spec.ndim() : asked->dim();
  if (dim < 0 || dim >= spec.ndim()) return spec;
  Placements placements = spec.placements();
  placements[axis.axis] =
      Shard(dim, cut_further(spec, static_cast<std::size_t>(dim), axis.size, options, owner));
  ShardOrder order = spec.shard_order();
  const auto entry = std::find_if(order.begin(), order.end(),
                                  [&](const ShardOrderEntry& one) { return one.dim >= dim; });
  if (entry != order.end() && entry->dim == dim) {
    entry->axes.push_back(axis.axis);
  } else {
    order.insert(entry, {dim, {axis.axis}});
  }
  return {spec.mesh(), placements, order, spec.meta()};
}

// Where a parameter is over the other axes.
DTensorSpec placed_before(const StandingMember& member, const DeviceMesh& root) {
  if (!is_dtensor(member.tensor)) {
    return replicated_spec(root, dense(meta_of(member.tensor)));
  }
  const DTensorSpec now = spec_of(member.tensor);
  if (!(now.mesh() == root)) {
    throw UsageError("a module's tensor is on another mesh")
        .fact("tensor", in_quotes(member.full_name()))
        .fact("is", to_string(now))
        .fact("mesh", to_string(root));
  }
  return densely(now);
}

bool is_buffer(const StandingMember& member) { return member.kind == MemberKind::Buffer; }

// Who owns what, if each has one owner: the longest first, to the rank that has least.
std::vector<std::int64_t> owners_of(const std::vector<StandingMember>& members,
                                    std::int64_t ranks) {
  std::vector<std::size_t> by_length(members.size());
  std::iota(by_length.begin(), by_length.end(), 0);
  std::stable_sort(by_length.begin(), by_length.end(), [&](std::size_t a, std::size_t b) {
    return members[a].tensor.numel() > members[b].tensor.numel();
  });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<std::int64_t> owners(members.size(), 0);
  for (const std::size_t k : by_length) {
    if (is_buffer(members[k])) continue;
    const auto least = std::min_element(loads.begin(), loads.end());
    owners[k] = least - loads.begin();
    *least += members[k].tensor.numel();
  }
  return owners;
}

// What is plain of them, too, has to be alike on all ranks.
std::vector<StandingMember> with_their_gradients(std::vector<StandingMember> members) {
  const std::size_t count = members.size();
  for (std::size_t k = 0; k < count; ++k) {
    const at::Tensor& grad = members[k].tensor.grad();
    if (!grad.defined()) continue;
    members.push_back({members[k].module, members[k].name + ".grad", grad, MemberKind::Buffer});
  }
  return members;
}

struct Placed {
  StandingMember member;
  DTensorSpec spec;
  std::vector<std::string> cut_over;  // the axes that cut it now
};

Placed placed_by_roles(const StandingMember& member, const DeviceMesh& root,
                       const std::vector<RoleAxis>& axes, const FullyShardOptions& options,
                       std::int64_t owner) {
  const DTensorSpec now = placed_before(member, root);
  std::vector<std::string> names;
  for (const RoleAxis& axis : axes) names.push_back(axis.name);
  DTensorSpec spec = with_axes_whole(now, names);
  std::vector<std::string> cut_over;
  for (const RoleAxis& axis : axes) {
    const DTensorSpec further = axis.is_cut() ? cut_by(spec, axis, options, owner) : spec;
    if (!(further == spec)) cut_over.push_back(axis.name);
    spec = further;
  }
  for (const RoleAxis& axis : axes) {
    const Placement& placement = now.placements()[axis.axis];
    if (is_replicate(placement) || placement == spec.placements()[axis.axis]) continue;
    throw UsageError("a parameter is cut along the axis already, otherwise than asked")
        .fact("tensor", in_quotes(member.full_name()))
        .fact("is", to_string(now))
        .fact("asked", to_string(spec))
        .hint("redistribute_module moves it");
  }
  return {member, spec, std::move(cut_over)};
}

at::Tensor placed_as(const at::Tensor& tensor, const DTensorSpec& spec, const DeviceMesh& root) {
  if (!is_dtensor(tensor)) {
    return distribute_tensor(tensor, root, spec.placements(),
                             {.source = std::nullopt, .order = spec.shard_order()});
  }
  return redistribute(tensor, spec.placements(), {.order = spec.shard_order()});
}

// Whether others may share the memory of its tile; of this rank alone.
bool may_have_views(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  const at::Tensor* tile = payload->tile_at_hand();
  return payload.use_count() > 2 || !tile || tile->use_count() > 1 ||
         tile->storage().use_count() > 1;
}

void become(const Placed& placed, const DeviceMesh& root, const Policies& policies) {
  at::Tensor tensor = placed.member.tensor;
  const at::NoGradGuard no_grad;
  if (!is_dtensor(tensor) || !(spec_of(tensor) == placed.spec)) {
    tensor.set_data(placed_as(tensor.detach(), placed.spec, root));
  } else if (policies.gathering && !payload_in(tensor)->gathering() && may_have_views(tensor)) {
    tensor.set_data(tensor.detach().clone());  // views would write unnoticed
  }
  set_policies(tensor, policies);
  at::Tensor& grad = tensor.mutable_grad();
  if (!grad.defined()) return;
  grad = placed_as(grad.detach(), gradient_spec(*payload_in(tensor), meta_of(grad)), root);
}

Policies policies_for(const Placed& placed, const std::vector<RoleAxis>& axes,
                      const FullyShardOptions& options) {
  Policies policies =
      is_dtensor(placed.member.tensor) ? policies_of(placed.member.tensor) : Policies();
  const GradientPolicy now = policies.gradient_of_module.value_or(GradientPolicy());
  GradientPolicy::OverAxes over = now.axes();
  for (const RoleAxis& axis : axes) over[axis.name] = options.reduction;
  policies.gradient_of_module = GradientPolicy(over, now.otherwise());
  policies.gradient_wire = options.wire;
  if (!placed.cut_over.empty()) {
    policies.gathering = Gathering{
        .over = placed.cut_over,
        .is_kept = is_whole(axes, &RoleAxis::parameters, "parameters"),
        .whole_gradient = is_whole(axes, &RoleAxis::gradients, "gradients"),
        .prefetches = options.prefetch == FullyShardOptions::Prefetch::Next,
        .most_bytes = options.most_bytes,
    };
  }
  return policies;
}

void check(const FullyShardOptions& options, const std::vector<RoleAxis>& axes) {
  if (options.multiple < 1 || options.most_bytes < 0) {
    throw UsageError("an option of fully_shard is out of range")
        .fact("multiple", std::to_string(options.multiple))
        .fact("most_bytes", std::to_string(options.most_bytes))
        .hint("a multiple is 1 or more, a number of bytes 0 or more");
  }
  const auto cuts =
      std::count_if(axes.begin(), axes.end(), [](const RoleAxis& axis) { return axis.is_cut(); });
  if (options.layout == Layout::Owned && cuts > 1) {
    throw UsageError("parameters that are owned by one rank are cut over one axis")
        .hint("Replicate over the other axes");
  }
  is_whole(axes, &RoleAxis::parameters, "parameters");
  is_whole(axes, &RoleAxis::gradients, "gradients");
}

ShardedRoles roles_of(const Placement& parameters, const Placement& gradients) {
  return {{parameters}, {gradients}, {Shard(0)}};
}

}  // namespace

ShardedRoles zero_1() { return roles_of(Replicate(), Replicate()); }
ShardedRoles zero_2() { return roles_of(Replicate(), Shard(0)); }
ShardedRoles zero_3() { return roles_of(Shard(0), Shard(0)); }
ShardedRoles hybrid() {
  const Placements placements{Replicate(), Shard(0)};
  return {placements, placements, placements};
}

void fully_shard(torch::nn::Module& module, const DeviceMesh& mesh, const ShardedRoles& roles,
                 const FullyShardOptions& options) {
  fully_shard_members(members_in(module), mesh, roles, options);
}

void inner::fully_shard_members(const std::vector<StandingMember>& standing, const DeviceMesh& mesh,
                                const ShardedRoles& roles, const FullyShardOptions& options) {
  const DeviceMesh root = mesh.root();
  const std::vector<RoleAxis> axes = role_axes(mesh, roles);
  check(options, axes);
  const std::vector<StandingMember> members = each_once(standing);
  std::int64_t ranks = 1;
  for (const RoleAxis& axis : axes) ranks = axis.is_cut() ? axis.size : ranks;
  const std::vector<std::int64_t> owners = owners_of(members, ranks);
  std::vector<Placed> all;
  for (std::size_t k = 0; k < members.size(); ++k) {
    all.push_back(is_buffer(members[k])
                      ? Placed{members[k], placed_before(members[k], root), {}}
                      : placed_by_roles(members[k], root, axes, options, owners[k]));
  }
  check_alike(with_their_gradients(members), root);
  for (const Placed& one : all) {
    become(one, root, is_buffer(one.member) ? Policies() : policies_for(one, axes, options));
  }
}

}  // namespace tegula
