// The idea: what LBFGS has gathered belongs to all of its parameters at once, as vectors of all
// their elements in the order of its list. So it is kept under the optimizer's own name, and fits
// the same list only.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/lbfgs.h>

#include <algorithm>
#include <deque>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/files/manifest.h"
#include "tegula/io/optimizer_state.h"

namespace tegula::inner {
namespace {

using torch::optim::LBFGSOptions;
using torch::optim::LBFGSParamState;
using torch::optim::Optimizer;
using History = std::deque<at::Tensor>;

struct Number {
  const char* name;
  StateValue (*get)(LBFGSParamState&);
  void (*set)(LBFGSParamState&, const StateValue&);
};
struct OneTensor {
  const char* name;
  at::Tensor& (*of)(LBFGSParamState&);
};
struct Tensors {
  const char* name;
  History& (*of)(LBFGSParamState&);
};

#define TEGULA_NUMBER(field, Type)                                                 \
  {#field, [](LBFGSParamState& state) { return StateValue(Type{state.field()}); }, \
   [](LBFGSParamState& state, const StateValue& value) { state.field(std::get<Type>(value)); }}
#define TEGULA_FIELD(field) {#field, [](LBFGSParamState& state) -> auto& { return state.field(); }}

constexpr Number kNumbers[] = {TEGULA_NUMBER(func_evals, std::int64_t),
                               TEGULA_NUMBER(n_iter, std::int64_t), TEGULA_NUMBER(t, double),
                               TEGULA_NUMBER(prev_loss, double)};
constexpr OneTensor kTensors[] = {TEGULA_FIELD(d), TEGULA_FIELD(H_diag),
                                  TEGULA_FIELD(prev_flat_grad)};
// `al` is written before it is read in each step.
constexpr Tensors kHistories[] = {TEGULA_FIELD(old_dirs), TEGULA_FIELD(old_stps), TEGULA_FIELD(ro)};

#undef TEGULA_NUMBER
#undef TEGULA_FIELD

class LBFGSPart final : public StatePart {
 public:
  LBFGSPart(std::string name, Optimizer& optimizer, const torch::nn::Module& module)
      : name_(std::move(name)), optimizer_(optimizer), module_(module) {}

  void list_saved(Saved& saved) const override {
    saved.values.push_back({named("kind"), std::string("LBFGS")});
    saved.values.push_back({named("groups.0.parameters"), names_of_parameters()});
    LBFGSOptions& options = this->options();
    saved.values.push_back({named("groups.0.lr"), options.lr()});
    saved.values.push_back({named("groups.0.max_iter"), options.max_iter()});
    saved.values.push_back({named("groups.0.tolerance_grad"), options.tolerance_grad()});
    saved.values.push_back({named("groups.0.tolerance_change"), options.tolerance_change()});
    saved.values.push_back({named("groups.0.history_size"), options.history_size()});
    if (options.max_eval())
      saved.values.push_back({named("groups.0.max_eval"), *options.max_eval()});
    if (options.line_search_fn()) {
      saved.values.push_back({named("groups.0.line_search_fn"), *options.line_search_fn()});
    }
    LBFGSParamState* state = state_there();
    if (state == nullptr) return;
    for (const Number& field : kNumbers) {
      saved.values.push_back({named_state(field.name), field.get(*state)});
    }
    for (const OneTensor& field : kTensors) {
      const at::Tensor& tensor = field.of(*state);
      if (tensor.defined()) saved.tensors.push_back({named_state(field.name), tensor});
    }
    for (const Tensors& field : kHistories) {
      const History& history = field.of(*state);
      for (std::size_t k = 0; k < history.size(); ++k) {
        saved.tensors.push_back({named_state(field.name, k), history[k]});
      }
    }
  }

  void list_wants(const Present& present, Wants& wants) const override {
    wants.values.push_back({named("kind"), std::string(), [](const StateValue&) {}});
    if (!is_the_same(present, "kind", std::string("LBFGS"), "kind", wants)) return;
    if (!is_the_same(present, "groups.0.parameters", names_of_parameters(),
                     "list of parameters, of which LBFGS keeps vectors,", wants)) {
      return;
    }
    want_options(present, wants);
    const std::string prefix = named("state.");
    const bool is_saved = std::ranges::any_of(
        present.values, [&](const auto& one) { return one.first.starts_with(prefix); });
    if (is_saved) want_state(present, wants);
  }

 private:
  // A new state, which takes the place of the one that is there when all is loaded.
  void want_state(const Present& present, Wants& wants) const {
    const auto fresh =
        std::make_shared<std::unique_ptr<LBFGSParamState>>(std::make_unique<LBFGSParamState>());
    LBFGSParamState& state = **fresh;
    for (const Number& field : kNumbers) {
      wants.values.push_back(
          {named_state(field.name), field.get(state),
           [fresh, &state, set = field.set](const StateValue& value) { set(state, value); }});
    }
    const auto add = [&](const auto& found) {
      const FileTensor& there = *found->second;
      const at::ScalarType type = there.dtype->dtype && libtorch_has(*there.dtype->dtype)
                                      ? scalar_type_of(*there.dtype->dtype)
                                      : first_parameter().scalar_type();  // reported as another
      wants.tensors.push_back({found->first, fresh_state(first_parameter(), there.shape, type)});
      return wants.tensors.back().tensor;
    };
    for (const OneTensor& field : kTensors) {
      const auto found = present.tensors.find(named_state(field.name));
      if (found != present.tensors.end()) field.of(state) = add(found);
    }
    for (const Tensors& field : kHistories) {
      History& history = field.of(state);
      for (std::size_t k = 0;; ++k) {
        const auto found = present.tensors.find(named_state(field.name, k));
        if (found == present.tensors.end()) break;
        history.push_back(add(found));
      }
    }
    wants.finish.push_back({named("state"), [fresh, this] {
                              optimizer_.state()[first_parameter().unsafeGetTensorImpl()] =
                                  std::move(*fresh);
                            }});
  }

  // Those that were saved; others stay as they are.
  void want_options(const Present& present, Wants& wants) const {
    const auto want = [&](const char* field, auto set) {
      const std::string name = named("groups.0." + std::string(field));
      wants.known.push_back(name);
      const auto found = present.values.find(name);
      if (found == present.values.end()) return;
      wants.finish.push_back({named("groups"), [set, value = found->second] { set(value); }});
    };
    LBFGSOptions& options = this->options();
    const auto number = [](const StateValue& value) {
      const auto* whole = std::get_if<std::int64_t>(&value);
      return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
    };
    want("lr", [&options, number](const StateValue& value) { options.lr(number(value)); });
    want("max_iter",
         [&options](const StateValue& value) { options.max_iter(std::get<std::int64_t>(value)); });
    want("max_eval",
         [&options](const StateValue& value) { options.max_eval(std::get<std::int64_t>(value)); });
    want("tolerance_grad",
         [&options, number](const StateValue& value) { options.tolerance_grad(number(value)); });
    want("tolerance_change",
         [&options, number](const StateValue& value) { options.tolerance_change(number(value)); });
    want("history_size", [&options](const StateValue& value) {
      options.history_size(std::get<std::int64_t>(value));
    });
    want("line_search_fn", [&options](const StateValue& value) {
      options.line_search_fn(std::get<std::string>(value));
    });
  }

  std::string named(const std::string& field) const { return joined_name(name_, field); }
  std::string named_state(const char* field) const { return named("state." + std::string(field)); }
  std::string named_state(const char* field, std::size_t index) const {
    return named_state(field) + "." + std::to_string(index);
  }

  LBFGSOptions& options() const {
    return dynamic_cast<LBFGSOptions&>(optimizer_.param_groups()[0].options());
  }
  const at::Tensor& first_parameter() const { return optimizer_.param_groups()[0].params()[0]; }
  LBFGSParamState* state_there() const {
    const auto found = optimizer_.state().find(first_parameter().unsafeGetTensorImpl());
    return found == optimizer_.state().end() ? nullptr
                                             : dynamic_cast<LBFGSParamState*>(found->second.get());
  }

  std::string names_of_parameters() const {
    const ParameterNames names(module_, name_);
    std::vector<std::string> texts;
    for (const at::Tensor& one : optimizer_.param_groups()[0].params()) {
      texts.push_back(names.of(one));
    }
    return join(texts, "\n");
  }

  bool is_the_same(const Present& present, const std::string& field, const std::string& here,
                   const std::string& what, Wants& wants) const {
    wants.known.push_back(named(field));
    const auto found = present.values.find(named(field));
    if (found == present.values.end() || are_same(found->second, here)) return true;
    wants.problems.push_back(in_quotes(name_) + " had another " + what + " when it was saved");
    return false;
  }

  std::string name_;
  Optimizer& optimizer_;
  const torch::nn::Module& module_;
};

}  // namespace

std::shared_ptr<StatePart> lbfgs_part(std::string name, Optimizer& optimizer,
                                      const torch::nn::Module& module) {
  return std::make_shared<LBFGSPart>(std::move(name), optimizer, module);
}

}  // namespace tegula::inner
