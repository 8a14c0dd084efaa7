// The idea: libtorch would wait for the reduction in order to add it to the gradient that is there.
// So that one is taken away first, and added by the engine's callback at the end of the pass. When
// many bytes are under way, the oldest are waited for.
#include "tegula/gradient/async_gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <vector>

namespace tegula::inner {
namespace {

class AsyncGradients {
 public:
  AsyncGradients() = default;
  AsyncGradients(const AsyncGradients&) = delete;
  AsyncGradients& operator=(const AsyncGradients&) = delete;
  ~AsyncGradients() { restore(); }  // does nothing once they are finished

  void add(const at::Tensor& leaf, const PayloadPtr& reduced) {
    at::Tensor earlier = leaf.grad();
    leaf.mutable_grad() = at::Tensor();
    under_way_.push_back({leaf, reduced, std::move(earlier)});
    // the sizes of wholes, so that all ranks wait for the same ones
    bytes_ += bytes_of(*reduced);
    const Gathering* gathering = payload_in(leaf)->gathering();
    const std::int64_t most = gathering ? gathering->most_bytes : kMostBytes;
    while (bytes_ > most && waited_for_ + 1 < under_way_.size()) {
      const Payload& oldest = *under_way_[waited_for_++].reduced;
      oldest.tile();
      bytes_ -= bytes_of(oldest);
    }
  }

  at::Tensor take(const at::Tensor& leaf) {
    at::Tensor earlier = leaf.grad();
    leaf.mutable_grad() = at::Tensor();
    taken_.push_back({leaf, earlier});
    return earlier;
  }

  void finish() {
    const at::NoGradGuard no_grad;
    for (const UnderWay& one : under_way_) one.reduced->tile();  // throws what the reduction met
    for (UnderWay& one : under_way_) {
      if (!one.earlier.defined()) continue;
      at::Tensor& grad = one.leaf.mutable_grad();
      // not stored, but returned to whoever asked for it
      grad = grad.defined() ? one.earlier.add_(grad) : one.earlier;
    }
    under_way_.clear();
    taken_.clear();
  }

 private:
  // Of gradients under way, unless their leaves say another number. Each is there twice meanwhile,
  // before and after its reduction.
  static constexpr std::int64_t kMostBytes = std::int64_t{32} << 20U;

  static std::int64_t bytes_of(const Payload& payload) {
    const TensorMeta& meta = payload.spec().meta();
    return meta.numel() * size_of(meta.dtype());
  }

  struct Taken {
    at::Tensor leaf;
    at::Tensor earlier;
  };
  struct UnderWay {
    at::Tensor leaf;
    PayloadPtr reduced;
    at::Tensor earlier;  // undefined: the leaf had none
  };

  void restore() {
    for (UnderWay& one : under_way_) one.leaf.mutable_grad() = one.earlier;
    for (Taken& one : taken_) one.leaf.mutable_grad() = one.earlier;
    under_way_.clear();
    taken_.clear();
  }

  std::vector<UnderWay> under_way_;
  std::size_t waited_for_ = 0;  // so many of them, the oldest
  std::int64_t bytes_ = 0;      // of the others, as wholes
  std::vector<Taken> taken_;
};

// Of the pass that runs on this thread.
std::shared_ptr<AsyncGradients> gradients_of_this_pass() {
  thread_local std::weak_ptr<AsyncGradients> current;
  thread_local int pass = -1;
  const int running = torch::autograd::get_current_graph_task_id();
  std::shared_ptr<AsyncGradients> gradients = pass == running ? current.lock() : nullptr;
  if (!gradients) {
    gradients = std::make_shared<AsyncGradients>();
    torch::autograd::Engine::get_default_engine().queue_callback(
        [gradients] { gradients->finish(); });
    current = gradients;
    pass = running;
  }
  return gradients;
}

}  // namespace

void finish_when_backward_ends(const at::Tensor& leaf, const PayloadPtr& reduced) {
  gradients_of_this_pass()->add(leaf, reduced);
}

at::Tensor take_gradient(const at::Tensor& leaf) { return gradients_of_this_pass()->take(leaf); }

}  // namespace tegula::inner
