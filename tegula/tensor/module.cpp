// The idea: set_data changes what a tensor is under all of its handles, so nothing needs to be
// replaced and nobody needs to be told.
#include "tegula/tensor/module.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/nn/module.h>
#include <torch/optim.h>

#include <map>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/tensor/module_members.h"
#include "tegula/tensor/name_patterns.h"

namespace tegula {

using namespace inner;

namespace {

using Member = ModuleMember;

// Each tensor once.
class Members {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [place, is_new] = places_.try_emplace(tensor.unsafeGetTensorImpl(), listed_.size());
    if (is_new) listed_.push_back({tensor, {}});
    listed_[place->second].names.push_back(name);
  }
  std::vector<Member> listed() && { return std::move(listed_); }

 private:
  std::vector<Member> listed_;
  std::map<c10::TensorImpl*, std::size_t> places_;
};

std::vector<Member> members_asked(const torch::nn::Module& module, const PlacementsByName& place) {
  std::vector<Member> members = members_of(module);
  if (!place) return members;
  for (Member& member : members) member.asked = place(member.names.front(), member.tensor);
  return members;
}

template <class Module>
std::vector<Member> members_asked(const Module& module, const PlacementPatterns& patterns) {
  std::vector<Member> members = members_of(module);
  std::vector<std::string> texts;
  std::vector<std::vector<std::string>> names;
  for (const auto& [text, placements] : patterns) texts.push_back(text);
  for (const Member& member : members) names.push_back(member.names);
  const std::vector<std::optional<std::size_t>> last = last_matches(texts, names);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (last[i]) members[i].asked = patterns[*last[i]].second;
  }
  return members;
}

// Where the member goes; replicated if nothing is said of it. UsageError if that does not fit.
DTensorSpec spec_asked(const Member& member, const DeviceMesh& mesh, const ShardOrder& order = {}) {
  const TensorMeta meta =
      is_dtensor(member.tensor) ? spec_of(member.tensor).meta() : dense(meta_of(member.tensor));
  try {
    const Placements placements =
        member.asked.value_or(Placements(mesh.ndim(), Placement(Replicate())));
    return order.empty() ? DTensorSpec(mesh, placements, meta)
                         : DTensorSpec(mesh, placements, order, meta);
  } catch (UsageError& error) {
    throw std::move(error).fact("tensor", in_quotes(member.names.front()));
  }
}

void check_can_be_distributed(const Member& member, const DTensorSpec& asked) {
  if (!is_dtensor(member.tensor) || !member.asked || spec_of(member.tensor) == asked) return;
  throw UsageError("a module's tensor is distributed already, and placed otherwise than asked")
      .fact("tensor", in_quotes(member.names.front()))
      .fact("is", to_string(spec_of(member.tensor)))
      .fact("asked", to_string(asked))
      .hint("redistribute_module moves it; what nothing is said of stays as it is");
}

void check_can_be_moved(const Member& member) {
  if (is_dtensor(member.tensor)) return;
  throw UsageError("redistribute_module needs a module that is distributed")
      .fact("plain", in_quotes(member.names.front()))
      .hint("use distribute_module");
}

void become(at::Tensor tensor, const DeviceMesh& mesh, const DTensorSpec& spec,
            const DistributeOptions& options) {
  tensor.set_data(distribute_tensor(tensor.detach(), mesh, spec.placements(), options));
}

void distribute_gradient(const at::Tensor& tensor, const DistributeOptions& options) {
  at::Tensor& grad = tensor.mutable_grad();
  if (!grad.defined() || is_dtensor(grad)) return;
  const Placements placements = with_reductions_done(spec_of(tensor)).placements();
  grad = distribute_tensor(grad.detach(), mesh_of(tensor), placements, options);
}

at::Tensor moved(const at::Tensor& tensor, const DeviceMesh& mesh, const DTensorSpec& to) {
  return redistribute(tensor.detach(), mesh, to.placements());
}

template <class State, class... Access>
bool convert_state(torch::optim::OptimizerParamState& state, const at::Tensor& parameter,
                   const DistributeOptions& options, Access... access) {
  auto* known = dynamic_cast<State*>(&state);
  if (!known) return false;
  ((access(*known, like_parameter(access(*known, std::nullopt), parameter, options))), ...);
  return true;
}

// Reads a member of an optimizer's state, or sets it if a value is given.
#define TEGULA_STATE(member)                                             \
  [](auto& held, const std::optional<at::Tensor>& value) -> at::Tensor { \
    if (value) held.member(*value);                                      \
    return held.member();                                                \
  }

void convert_known_state(torch::optim::OptimizerParamState& state, const at::Tensor& parameter,
                         const DistributeOptions& options) {
  using namespace torch::optim;
  const bool known =
      convert_state<SGDParamState>(state, parameter, options, TEGULA_STATE(momentum_buffer)) ||
      convert_state<AdamParamState>(state, parameter, options, TEGULA_STATE(exp_avg),
                                    TEGULA_STATE(exp_avg_sq), TEGULA_STATE(max_exp_avg_sq)) ||
      convert_state<AdamWParamState>(state, parameter, options, TEGULA_STATE(exp_avg),
                                     TEGULA_STATE(exp_avg_sq), TEGULA_STATE(max_exp_avg_sq)) ||
      convert_state<AdagradParamState>(state, parameter, options, TEGULA_STATE(sum)) ||
      convert_state<RMSpropParamState>(state, parameter, options, TEGULA_STATE(square_avg),
                                       TEGULA_STATE(momentum_buffer), TEGULA_STATE(grad_avg));
  if (!known) {
    throw UsageError("the state of this optimizer has no known form")
        .hint("distribute the module before the optimizer's first step");
  }
}

#undef TEGULA_STATE

}  // namespace

std::vector<Member> inner::members_of(const torch::nn::Module& module) {
  Members members;
  for (const auto& item : module.named_parameters()) members.add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) members.add(item.key(), item.value());
  return std::move(members).listed();
}

std::vector<Member> inner::members_of(const torch::jit::Module& module) {
  Members members;
  for (const auto& item : module.named_parameters()) members.add(item.name, item.value);
  for (const auto& item : module.named_buffers()) members.add(item.name, item.value);
  return std::move(members).listed();
}

void inner::distribute_members(const std::vector<Member>& members, const DeviceMesh& mesh,
                               const DistributeOptions& options) {
  std::vector<DTensorSpec> specs;
  for (const Member& member : members) {
    specs.push_back(spec_asked(member, mesh, options.order));
    check_can_be_distributed(member, specs.back());
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const at::Tensor& tensor = members[i].tensor;
    if (!is_dtensor(tensor)) become(tensor, mesh, specs[i], options);
    distribute_gradient(tensor, options);
  }
}

void inner::redistribute_members(const std::vector<Member>& members, const DeviceMesh& mesh) {
  std::vector<DTensorSpec> specs;
  for (const Member& member : members) {
    check_can_be_moved(member);
    specs.push_back(spec_asked(member, mesh));
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    at::Tensor tensor = members[i].tensor;
    if (!(spec_of(tensor) == specs[i])) {
      set_data_keeping_policies(tensor, moved(tensor, mesh, specs[i]));
    }
    at::Tensor& grad = tensor.mutable_grad();
    const DTensorSpec of_grad = with_reductions_done(specs[i]);
    if (grad.defined() && is_dtensor(grad) && !(spec_of(grad) == of_grad)) {
      grad = moved(grad, mesh, of_grad);
    }
  }
}

at::Tensor inner::like_parameter(const at::Tensor& state, const at::Tensor& parameter,
                                 const DistributeOptions& options) {
  if (!state.defined() || !is_dtensor(parameter)) return state;
  if (state.sizes() != parameter.sizes()) return state;
  const DeviceMesh mesh = mesh_of(parameter);
  const DTensorSpec spec = with_reductions_done(spec_of(parameter));
  if (!is_dtensor(state)) {
    return distribute_tensor(state.detach(), mesh, spec.placements(), options);
  }
  const bool is_there = mesh_of(state) == mesh && placements_of(state) == spec.placements();
  return is_there ? state : moved(state, mesh, spec);
}

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PlacementPatterns& patterns, const DistributeOptions& options) {
  distribute_members(members_asked(module, patterns), mesh, options);
}

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PlacementsByName& place, const DistributeOptions& options) {
  distribute_members(members_asked(module, place), mesh, options);
}

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const DistributeOptions& options) {
  distribute_members(members_of(module), mesh, options);
}

void distribute_module(torch::jit::Module& module, const DeviceMesh& mesh,
                       const PlacementPatterns& patterns, const DistributeOptions& options) {
  torch::jit::setTensorExprFuserEnabled(false);
  distribute_members(members_asked(module, patterns), mesh, options);
}

void redistribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                         const PlacementPatterns& patterns) {
  redistribute_members(members_asked(module, patterns), mesh);
}

void redistribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                         const PlacementsByName& place) {
  redistribute_members(members_asked(module, place), mesh);
}

void distribute_optimizer_state(torch::optim::Optimizer& optimizer,
                                const DistributeOptions& options) {
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) {
        convert_known_state(*found->second, parameter, options);
      }
    }
  }
}

void set_gradient_policy(torch::nn::Module& module, const GradientPolicy& policy) {
  for (const at::Tensor& parameter : module.parameters()) {
    set_gradient_policy(parameter, policy, PolicyOf::Module);
  }
}

}  // namespace tegula
