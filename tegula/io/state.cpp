#include "tegula/io/state.h"

#include <torch/nn/module.h>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/io/state_part.h"
#include "tegula/tensor/module_members.h"

namespace tegula {

using namespace inner;

namespace {

class TensorsPart final : public StatePart {
 public:
  explicit TensorsPart(std::vector<StateTensor> tensors) : tensors_(std::move(tensors)) {}

  void list_saved(Saved& saved) const override {
    saved.tensors.insert(saved.tensors.end(), tensors_.begin(), tensors_.end());
  }
  void list_wants(const Present&, Wants& wants) const override {
    wants.tensors.insert(wants.tensors.end(), tensors_.begin(), tensors_.end());
  }

 private:
  std::vector<StateTensor> tensors_;
};

// Looked at when it is saved or loaded: a module may have changed since it was added.
class ModulePart final : public StatePart {
 public:
  ModulePart(std::string name, torch::nn::Module& module)
      : name_(std::move(name)), module_(module) {}

  void list_saved(Saved& saved) const override { list(saved.tensors); }
  void list_wants(const Present&, Wants& wants) const override { list(wants.tensors); }

 private:
  void list(std::vector<StateTensor>& tensors) const {
    for (const ModuleMember& member : members_of(module_)) {
      tensors.push_back({joined_name(name_, member.names.front()), member.tensor});
    }
  }

  std::string name_;
  torch::nn::Module& module_;
};

class ValuePart final : public StatePart {
 public:
  ValuePart(std::string name, std::function<StateValue()> get,
            std::function<void(const StateValue&)> set, std::vector<NamedValue> Saved::* where)
      : name_(std::move(name)), get_(std::move(get)), set_(std::move(set)), where_(where) {}

  void list_saved(Saved& saved) const override { (saved.*where_).push_back({name_, get_()}); }
  void list_wants(const Present&, Wants& wants) const override {
    wants.values.push_back({name_, get_(), set_});
  }

 private:
  std::string name_;
  std::function<StateValue()> get_;
  std::function<void(const StateValue&)> set_;
  std::vector<NamedValue> Saved::* where_;
};

template <class Value>
std::shared_ptr<StatePart> part_of_reference(const std::string& name, Value& value) {
  return std::make_shared<ValuePart>(
      name, [&value] { return StateValue(value); },
      [&value](const StateValue& loaded) { value = std::get<Value>(loaded); }, &Saved::values);
}

}  // namespace

std::string inner::place_of(const World& world, const DeviceMesh& mesh) {
  const std::optional<Coordinate> at = mesh.coordinate_of(world.rank());
  if (!at || mesh.fiber_count() != 1) {
    throw UsageError(
        "a value of each rank's own needs a mesh in which every rank has its own place")
        .fact("mesh", to_string(mesh))
        .fact("rank", std::to_string(world.rank()));
  }
  std::vector<std::string> texts;
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    texts.push_back(mesh.axes()[axis].name + "=" + std::to_string((*at)[axis]));
  }
  return join(texts, ",");
}

std::string inner::joined_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

State& State::add(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    throw UsageError("an undefined tensor has no place in a state").fact("name", in_quotes(name));
  }
  parts_.push_back(std::make_shared<TensorsPart>(std::vector<StateTensor>{{name, tensor}}));
  return *this;
}

State& State::add(const std::string& name, torch::nn::Module& module) {
  parts_.push_back(std::make_shared<ModulePart>(name, module));
  return *this;
}

State& State::add(const std::string& name, torch::optim::Optimizer& optimizer,
                  const torch::nn::Module& module) {
  parts_.push_back(optimizer_part(name, optimizer, module));
  return *this;
}

State& State::add(const std::string& name, std::int64_t& value) {
  parts_.push_back(part_of_reference(name, value));
  return *this;
}
State& State::add(const std::string& name, double& value) {
  parts_.push_back(part_of_reference(name, value));
  return *this;
}
State& State::add(const std::string& name, std::string& value) {
  parts_.push_back(part_of_reference(name, value));
  return *this;
}

State& State::add(const std::string& name, std::function<StateValue()> get,
                  std::function<void(const StateValue&)> set) {
  parts_.push_back(
      std::make_shared<ValuePart>(name, std::move(get), std::move(set), &Saved::values));
  return *this;
}

State& State::add_per_rank(const std::string& name, const DeviceMesh& mesh,
                           std::function<StateValue()> get,
                           std::function<void(const StateValue&)> set) {
  parts_.push_back(std::make_shared<ValuePart>(name + "@" + place_of(world_, mesh), std::move(get),
                                               std::move(set), &Saved::per_rank));
  return *this;
}

State& State::add(std::shared_ptr<StatePart> part) {
  parts_.push_back(std::move(part));
  return *this;
}

State& State::add_random(const std::string& name) {
  parts_.push_back(random_part(name, world_));
  return *this;
}

}  // namespace tegula
