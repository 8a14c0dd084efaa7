// The idea: an optimizer is tables of fields, by which its state is read and written without
// knowing it. What belongs to a parameter is kept by the parameter's name, what belongs to a group
// with the names of its parameters.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim.h>

#include <algorithm>
#include <optional>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/files/manifest.h"
#include "tegula/io/optimizer_state.h"

namespace tegula::inner {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::OptimizerParamState;

struct TensorField {
  const char* name;
  at::Tensor& (*of)(OptimizerParamState&);
};
struct CountField {
  const char* name;
  std::int64_t& (*of)(OptimizerParamState&);
};
struct OptionField {
  const char* name;
  StateValue (*get)(OptimizerOptions&);
  void (*set)(OptimizerOptions&, const StateValue&);
};

struct Kind {
  const char* name;
  bool (*has_options)(OptimizerOptions&);
  std::unique_ptr<OptimizerParamState> (*make_state)();
  std::vector<TensorField> tensors;
  std::vector<CountField> counts;
  std::vector<OptionField> options;
};

#define TEGULA_FIELD(Type, field) \
  {#field, [](OptimizerParamState& held) -> auto& { return dynamic_cast<Type&>(held).field(); }}
#define TEGULA_NUMBER(Type, field)                                                               \
  {#field, [](OptimizerOptions& held) { return StateValue(dynamic_cast<Type&>(held).field()); }, \
   [](OptimizerOptions& held, const StateValue& value) {                                         \
     dynamic_cast<Type&>(held).field(std::get<double>(value));                                   \
   }}
#define TEGULA_SWITCH(Type, field)                                               \
  {#field,                                                                       \
   [](OptimizerOptions& held) {                                                  \
     return StateValue(std::int64_t{dynamic_cast<Type&>(held).field() ? 1 : 0}); \
   },                                                                            \
   [](OptimizerOptions& held, const StateValue& value) {                         \
     dynamic_cast<Type&>(held).field(std::get<std::int64_t>(value) != 0);        \
   }}
#define TEGULA_BETA(Type, index)                                                         \
  {"beta" #index,                                                                        \
   [](OptimizerOptions& held) {                                                          \
     return StateValue(std::get<(index) - 1>(dynamic_cast<Type&>(held).betas()));        \
   },                                                                                    \
   [](OptimizerOptions& held, const StateValue& value) {                                 \
     std::get<(index) - 1>(dynamic_cast<Type&>(held).betas()) = std::get<double>(value); \
   }}

template <class Options, class ParamState>
Kind kind(const char* name, std::vector<TensorField> tensors, std::vector<CountField> counts,
          std::vector<OptionField> options) {
  return {name,
          [](OptimizerOptions& held) { return dynamic_cast<Options*>(&held) != nullptr; },
          []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<ParamState>(); },
          std::move(tensors),
          std::move(counts),
          std::move(options)};
}

template <class Options, class ParamState>
Kind adam_kind(const char* name) {
  return kind<Options, ParamState>(
      name,
      {TEGULA_FIELD(ParamState, exp_avg), TEGULA_FIELD(ParamState, exp_avg_sq),
       TEGULA_FIELD(ParamState, max_exp_avg_sq)},
      {TEGULA_FIELD(ParamState, step)},
      {TEGULA_NUMBER(Options, lr), TEGULA_BETA(Options, 1), TEGULA_BETA(Options, 2),
       TEGULA_NUMBER(Options, eps), TEGULA_NUMBER(Options, weight_decay),
       TEGULA_SWITCH(Options, amsgrad)});
}

const std::vector<Kind>& kinds() {
  using namespace torch::optim;
  static const std::vector<Kind> all = {
      kind<SGDOptions, SGDParamState>(
          "SGD", {TEGULA_FIELD(SGDParamState, momentum_buffer)}, {},
          {TEGULA_NUMBER(SGDOptions, lr), TEGULA_NUMBER(SGDOptions, momentum),
           TEGULA_NUMBER(SGDOptions, dampening), TEGULA_NUMBER(SGDOptions, weight_decay),
           TEGULA_SWITCH(SGDOptions, nesterov)}),
      adam_kind<AdamOptions, AdamParamState>("Adam"),
      adam_kind<AdamWOptions, AdamWParamState>("AdamW"),
      kind<AdagradOptions, AdagradParamState>(
          "Adagrad", {TEGULA_FIELD(AdagradParamState, sum)},
          {TEGULA_FIELD(AdagradParamState, step)},
          {TEGULA_NUMBER(AdagradOptions, lr), TEGULA_NUMBER(AdagradOptions, lr_decay),
           TEGULA_NUMBER(AdagradOptions, weight_decay),
           TEGULA_NUMBER(AdagradOptions, initial_accumulator_value),
           TEGULA_NUMBER(AdagradOptions, eps)}),
      kind<RMSpropOptions, RMSpropParamState>(
          "RMSprop",
          {TEGULA_FIELD(RMSpropParamState, square_avg),
           TEGULA_FIELD(RMSpropParamState, momentum_buffer),
           TEGULA_FIELD(RMSpropParamState, grad_avg)},
          {TEGULA_FIELD(RMSpropParamState, step)},
          {TEGULA_NUMBER(RMSpropOptions, lr), TEGULA_NUMBER(RMSpropOptions, alpha),
           TEGULA_NUMBER(RMSpropOptions, eps), TEGULA_NUMBER(RMSpropOptions, weight_decay),
           TEGULA_NUMBER(RMSpropOptions, momentum), TEGULA_SWITCH(RMSpropOptions, centered)})};
  return all;
}

#undef TEGULA_FIELD
#undef TEGULA_NUMBER
#undef TEGULA_SWITCH
#undef TEGULA_BETA

const Kind& kind_of(Optimizer& optimizer) {
  for (const Kind& one : kinds()) {
    if (one.has_options(optimizer.defaults())) return one;
  }
  throw UsageError("the state of this optimizer has no known form")
      .hint(
          "SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS have one; add tensors of others by "
          "themselves");
}

class OptimizerPart final : public StatePart {
 public:
  OptimizerPart(std::string name, Optimizer& optimizer, const torch::nn::Module& module)
      : name_(std::move(name)), optimizer_(optimizer), module_(module) {}

  void list_saved(Saved& saved) const override {
    const Kind& kind = kind_of(optimizer_);
    const ParameterNames names(module_, name_);
    saved.values.push_back({joined_name(name_, "kind"), kind.name});
    for (std::size_t k = 0; k < optimizer_.param_groups().size(); ++k) {
      OptimizerParamGroup& group = optimizer_.param_groups()[k];
      std::vector<std::string> of_group;
      for (const at::Tensor& parameter : group.params()) {
        of_group.push_back(names.of(parameter));
        list_state(kind, of_group.back(), parameter, saved);
      }
      saved.values.push_back({group_name(k, "parameters"), join(of_group, "\n")});
      for (const OptionField& field : kind.options) {
        saved.values.push_back({group_name(k, field.name), field.get(group.options())});
      }
    }
  }

  void list_wants(const Present& present, Wants& wants) const override {
    const Kind& kind = kind_of(optimizer_);
    const ParameterNames names(module_, name_);
    const SavedGroups groups = saved_groups(present);
    wants.known.insert(wants.known.end(), groups.known.begin(), groups.known.end());
    wants.values.push_back({joined_name(name_, "kind"), std::string(), [](const StateValue&) {}});
    if (!is_of_kind(kind, present, wants)) return;
    refuse_unknown(kind, groups, wants);
    for (OptimizerParamGroup& group : optimizer_.param_groups()) {
      std::vector<std::string> of_group;
      for (const at::Tensor& parameter : group.params()) {
        of_group.push_back(names.of(parameter));
        want_state(kind, of_group.back(), parameter, present, wants);
      }
      want_options(kind, group, of_group, groups, wants);
    }
  }

 private:
  // What was saved of groups: options by number of group, numbers by parameter.
  struct SavedGroups {
    std::map<std::string, std::string> group_of;
    std::map<std::string, std::map<std::string, StateValue>> options;
    std::vector<std::string> known;
  };

  std::string group_name(std::size_t group, const std::string& field) const {
    return joined_name(name_, "groups." + std::to_string(group) + "." + field);
  }

  OptimizerParamState* state_of(const at::Tensor& parameter) const {
    const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
    return found == optimizer_.state().end() ? nullptr : found->second.get();
  }

  void list_state(const Kind& kind, const std::string& parameter_name, const at::Tensor& parameter,
                  Saved& saved) const {
    OptimizerParamState* state = state_of(parameter);
    if (state == nullptr) return;
    const std::string prefix = joined_name(name_, parameter_name);
    for (const TensorField& field : kind.tensors) {
      const at::Tensor& tensor = field.of(*state);
      if (tensor.defined()) saved.tensors.push_back({joined_name(prefix, field.name), tensor});
    }
    for (const CountField& field : kind.counts) {
      saved.values.push_back({joined_name(prefix, field.name), field.of(*state)});
    }
  }

  bool is_of_kind(const Kind& kind, const Present& present, Wants& wants) const {
    const auto found = present.values.find(joined_name(name_, "kind"));
    if (found == present.values.end()) return true;  // reported as missing
    if (are_same(found->second, std::string(kind.name))) return true;
    wants.problems.push_back(in_quotes(name_) + " was the state of " + to_string(found->second) +
                             ", here is " + in_quotes(kind.name));
    return false;
  }

  SavedGroups saved_groups(const Present& present) const {
    SavedGroups groups;
    const std::string prefix = joined_name(name_, "groups.");
    for (const auto& [name, value] : present.values) {
      if (!name.starts_with(prefix)) continue;
      groups.known.push_back(name);
      const std::size_t dot = name.find('.', prefix.size());
      if (dot == std::string::npos) continue;
      const std::string number = name.substr(prefix.size(), dot - prefix.size());
      const std::string field = name.substr(dot + 1);
      const auto* text = std::get_if<std::string>(&value);
      if (field != "parameters" || text == nullptr) {
        groups.options[number][field] = value;
        continue;
      }
      std::size_t begin = 0;
      while (begin < text->size()) {
        const std::size_t end = std::min(text->find('\n', begin), text->size());
        groups.group_of[text->substr(begin, end - begin)] = number;
        begin = end + 1;
      }
    }
    return groups;
  }

  // Fills the state that is there, or one that takes its place when all is loaded.
  void want_state(const Kind& kind, const std::string& parameter_name, const at::Tensor& parameter,
                  const Present& present, Wants& wants) const {
    const std::string prefix = joined_name(name_, parameter_name);
    OptimizerParamState* there = state_of(parameter);
    const bool is_saved =
        std::ranges::any_of(kind.tensors,
                            [&](const auto& field) {
                              return present.tensors.contains(joined_name(prefix, field.name));
                            }) ||
        std::ranges::any_of(kind.counts, [&](const auto& field) {
          return present.values.contains(joined_name(prefix, field.name));
        });
    if (!is_saved && there == nullptr) return;
    const auto fresh = std::make_shared<std::unique_ptr<OptimizerParamState>>();
    const bool is_fresh = there == nullptr;
    if (is_fresh) {
      *fresh = kind.make_state();
      there = fresh->get();
    }
    // By each field that is asked for, so that the state lives as long as one of them.
    const auto install = [fresh, parameter, &optimizer = optimizer_] {
      if (*fresh) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(*fresh);
    };
    const at::NoGradGuard no_grad;
    for (const TensorField& field : kind.tensors) {
      at::Tensor tensor = field.of(*there);
      const std::string name = joined_name(prefix, field.name);
      if (!tensor.defined() && present.tensors.contains(name)) {
        tensor = at::zeros_like(parameter.detach());
        if (is_fresh) field.of(*there) = tensor;  // zeros if it is not asked for
        wants.finish.push_back({name, [install, there, field, tensor] {
                                  install();
                                  field.of(*there) = tensor;
                                }});
      }
      if (tensor.defined()) wants.tensors.push_back({name, tensor});
    }
    for (const CountField& field : kind.counts) {
      std::int64_t& count = field.of(*there);
      wants.values.push_back({joined_name(prefix, field.name), std::int64_t{0},
                              [install, &count](const StateValue& value) {
                                install();
                                count = std::get<std::int64_t>(value);
                              }});
    }
  }

  // Switches that are on and that this optimizer lacks: it would go on otherwise.
  void refuse_unknown(const Kind& kind, const SavedGroups& groups, Wants& wants) const {
    for (const auto& [number, options] : groups.options) {
      for (const auto& [field, value] : options) {
        const auto* is_on = std::get_if<std::int64_t>(&value);
        if (is_on == nullptr || *is_on == 0) continue;
        if (std::ranges::any_of(kind.options, [&](const auto& one) { return one.name == field; })) {
          continue;
        }
        wants.problems.push_back("the option " + field + " of " + in_quotes(name_) + " is " +
                                 std::to_string(*is_on) + ", which " + kind.name +
                                 " does not have here");
      }
    }
  }

  // The options that the group's parameters had, if they had the same ones.
  void want_options(const Kind& kind, OptimizerParamGroup& group,
                    const std::vector<std::string>& parameters, const SavedGroups& groups,
                    Wants& wants) const {
    for (const OptionField& field : kind.options) {
      std::optional<StateValue> agreed;
      for (const std::string& parameter : parameters) {
        const auto number = groups.group_of.find(parameter);
        if (number == groups.group_of.end()) continue;
        const auto options = groups.options.find(number->second);
        if (options == groups.options.end()) continue;
        const auto option = options->second.find(field.name);
        if (option == options->second.end()) continue;
        if (agreed && !are_same(*agreed, option->second)) {
          wants.problems.push_back("parameters of one group of " + in_quotes(name_) +
                                   " had different " + field.name + ": " + to_string(*agreed) +
                                   " and, of " + in_quotes(parameter) + ", " +
                                   to_string(option->second));
          return;
        }
        agreed = option->second;
      }
      if (!agreed) continue;
      if (agreed->index() != field.get(group.options()).index()) {
        wants.problems.push_back("the option " + std::string(field.name) + " of " +
                                 in_quotes(name_) + " is " + tegula::inner::kind_of(*agreed));
        continue;
      }
      const auto set = [&options = group.options(), field, value = *agreed] {
        field.set(options, value);
      };
      wants.finish.push_back({joined_name(name_, "groups"), set});
    }
  }

  std::string name_;
  Optimizer& optimizer_;
  const torch::nn::Module& module_;
};

}  // namespace

std::shared_ptr<StatePart> optimizer_part(std::string name, Optimizer& optimizer,
                                          const torch::nn::Module& module) {
  if (dynamic_cast<torch::optim::LBFGSOptions*>(&optimizer.defaults()) != nullptr) {
    return lbfgs_part(std::move(name), optimizer, module);
  }
  return std::make_shared<OptimizerPart>(std::move(name), optimizer, module);
}

}  // namespace tegula::inner
