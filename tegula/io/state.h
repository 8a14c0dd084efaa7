// What a checkpoint holds: a list of named things of a program, which save reads and load writes.
//
//   State state(world);
//   state.add("model", *model).add("optimizer", optimizer, *model).add("step", step).add_random();
//   save("run", state, {.step = step});
//   load("run", state);                       // also with another number of ranks
//
// A State holds handles and references; what it refers to has to live as long. All ranks add the
// same names, except that a tensor may stand on some ranks only (the layers of a pipeline stage).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/mesh/device_mesh.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tegula {

namespace inner {
class StatePart;
}

using StateValue = std::variant<std::int64_t, double, std::string>;

class State {
 public:
  explicit State(World world) : world_(std::move(world)) {}

  // A tensor, plain or distributed; loaded in place. A plain one is the same on all ranks that have
  // it: save checks that, by a checksum.
  State& add(const std::string& name, const at::Tensor& tensor);
  // Parameters and buffers, as name.<their name>; an empty name leaves theirs as they are. One that
  // stands in several places is kept under the first of its names.
  State& add(const std::string& name, torch::nn::Module& module);
  // What the optimizer has gathered, by the names that the module has for its parameters, and the
  // options of its groups. Loaded into an optimizer whose groups are others, a group takes the
  // options that its parameters had. SGD, Adam, AdamW, Adagrad, RMSprop; LBFGS, if its list of
  // parameters is the same. UsageError when it is saved for others, and for a parameter that the
  // module does not have.
  State& add(const std::string& name, torch::optim::Optimizer& optimizer,
             const torch::nn::Module& module);
  // The same on all ranks; save refuses others.
  State& add(const std::string& name, std::int64_t& value);
  State& add(const std::string& name, double& value);
  State& add(const std::string& name, std::string& value);
  // Asked for when it is saved, told when it is loaded, with a value of the same kind: schedules
  // and other things with a state of their own.
  State& add(const std::string& name, std::function<StateValue()> get,
             std::function<void(const StateValue&)> set);
  // A value of this rank's own, kept under its place in the mesh: name@dp=0,tp=1. A load on a mesh
  // without that place reports it as missing.
  State& add_per_rank(const std::string& name, const DeviceMesh& mesh,
                      std::function<StateValue()> get, std::function<void(const StateValue&)> set);
  // Where random numbers stand, those of distributed tensors and those of torch's default
  // generator. If ranks differ in it, it loads with the same number of ranks only.
  State& add_random(const std::string& name = "random");

  // A thing that lists its own tensors and values (io/state_part.h).
  State& add(std::shared_ptr<inner::StatePart> part);

  const World& world() const { return world_; }
  const std::vector<std::shared_ptr<inner::StatePart>>& parts() const { return parts_; }

 private:
  World world_;
  std::vector<std::shared_ptr<inner::StatePart>> parts_;
};

}  // namespace tegula
