// The idea: an autograd function that keeps its inputs and the state of everything the function
// looks at besides them; its backward is a forward and a backward pass inside of the outer one.
#include "tegula/parallel/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <mutex>
#include <optional>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/payload/host_errors.h"
#include "tegula/random/random.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {
namespace {

using Tensors = std::vector<at::Tensor>;

// Random numbers ----------------------------------------------------------------------------------

// Where random numbers stand: those of plain tensors, and those of the DTensors' world.
class RandomState {
 public:
  explicit RandomState(std::optional<World> world) : world_(std::move(world)) {
    if (world_) distributed_ = rng_state(*world_);
    const std::lock_guard lock(generator().mutex());
    plain_ = generator().get_state();
  }

  void restore() const {
    {
      at::Generator now = generator();
      const std::lock_guard lock(now.mutex());
      now.set_state(plain_);
    }
    if (world_) set_rng_state(*world_, *distributed_);
  }

  const std::optional<World>& world() const { return world_; }

 private:
  static at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

  std::optional<World> world_;
  std::optional<RNGState> distributed_;
  at::Tensor plain_;
};

std::optional<World> world_among(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && is_dtensor(tensor)) return world_of(tensor);
  }
  return std::nullopt;
}

// Puts a state back, and at the end the one that was there.
class Replay {
 public:
  explicit Replay(const RandomState& earlier) : now_(earlier.world()) { earlier.restore(); }
  ~Replay() { now_.restore(); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

 private:
  RandomState now_;
};

// Autocast ----------------------------------------------------------------------------------------

// Of one kind of device.
struct Autocast {
  explicit Autocast(at::DeviceType of)
      : device(of),
        enabled(at::autocast::is_autocast_enabled(of)),
        dtype(at::autocast::get_autocast_dtype(of)) {}
  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;
};

// Without libtorch's cache of casts: nobody would clear it, and the next step would find the
// weights of this one.
class AutocastGuard {
 public:
  explicit AutocastGuard(const Autocast& wanted)
      : earlier_(wanted.device), was_cached_(at::autocast::is_autocast_cache_enabled()) {
    set(wanted);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastGuard() {
    set(earlier_);
    at::autocast::set_autocast_cache_enabled(was_cached_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  static void set(const Autocast& state) {
    at::autocast::set_autocast_enabled(state.device, state.enabled);
    at::autocast::set_autocast_dtype(state.device, state.dtype);
  }
  Autocast earlier_;
  bool was_cached_;
};

at::DeviceType device_among(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) return tensor.device().type();
  }
  return host_device().type();
}

// The function ------------------------------------------------------------------------------------

struct Kept : torch::CustomClassHolder {
  Kept(CheckpointFunction what, const Tensors& inputs)
      : function(std::move(what)), random(world_among(inputs)), autocast(device_among(inputs)) {}
  CheckpointFunction function;
  RandomState random;
  Autocast autocast;
  std::vector<bool> wants_grad;
  std::size_t results = 0;
};

void check_can_backpropagate() {
  if (at::GradMode::is_enabled()) {
    throw UsageError("a checkpoint cannot be differentiated twice")
        .hint("leave checkpoint out where create_graph is set");
  }
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen != nullptr && !chosen->empty()) {
    throw UsageError("gradients of chosen inputs cannot pass a checkpoint")
        .hint("call backward() instead of grad(), or leave checkpoint out");
  }
}

struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static Tensors forward(torch::autograd::AutogradContext* context,
                         const c10::intrusive_ptr<Kept>& kept, at::TensorList inputs) {
    const Tensors given(inputs.begin() + 1, inputs.end());
    context->save_for_backward(given);
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    Tensors results = kept->function(given);
    kept->results = results.size();
    return results;
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& grads) {
    return with_host_errors([&] { return gradients_of_inputs(context, grads); });
  }

 private:
  static Tensors gradients_of_inputs(torch::autograd::AutogradContext* context,
                                     const Tensors& grads) {
    check_can_backpropagate();
    const auto capsule = context->saved_data["kept"].toCapsule();
    const Kept& kept = *static_cast<Kept*>(capsule.get());
    const Tensors saved = context->get_saved_variables();
    Tensors inputs;
    for (std::size_t k = 0; k < saved.size(); ++k) {
      const at::Tensor& input = saved[k];
      inputs.push_back(input.defined() ? input.detach().requires_grad_(kept.wants_grad[k]) : input);
    }
    backpropagate(computed_again(kept, inputs), grads);
    Tensors gradients{at::Tensor(), at::Tensor()};  // of the function and of the mark
    for (const at::Tensor& input : inputs) {
      gradients.push_back(input.defined() ? input.grad() : at::Tensor());
    }
    return gradients;
  }

  static Tensors computed_again(const Kept& kept, const Tensors& inputs) {
    const at::AutoGradMode with_grad(true);
    const AutocastGuard autocast(kept.autocast);
    const Replay replay(kept.random);
    Tensors results = kept.function(inputs);
    if (results.size() == kept.results) return results;
    throw UsageError("a checkpointed function gave another number of results in backward")
        .fact("forward", std::to_string(kept.results))
        .fact("backward", std::to_string(results.size()))
        .hint("it must do the same each time it is called");
  }

  static void backpropagate(const Tensors& results, const Tensors& grads) {
    Tensors roots, cotangents;
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (!results[k].defined() || !results[k].requires_grad() || !grads[k].defined()) continue;
      roots.push_back(results[k]);
      cotangents.push_back(grads[k]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, cotangents);
  }
};

}  // namespace

std::vector<at::Tensor> checkpoint(const CheckpointFunction& function,
                                   const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  auto kept = c10::make_intrusive<Kept>(function, inputs);
  for (const at::Tensor& input : inputs) {
    kept->wants_grad.push_back(input.defined() && input.requires_grad());
  }
  // what the function uses otherwise may require grad where no input does
  Tensors marked{at::empty({0}, at::TensorOptions(host_device())).requires_grad_()};
  marked.insert(marked.end(), inputs.begin(), inputs.end());
  return Checkpointed::apply(kept, at::TensorList(marked));
}

at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function,
                      const at::Tensor& input) {
  return checkpoint([function](const Tensors& inputs) { return Tensors{function(inputs[0])}; },
                    Tensors{input})[0];
}

}  // namespace tegula
