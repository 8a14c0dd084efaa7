// The idea: libtorch would wait for the reduction in order to add it to the gradient that is there.
// So that one is taken away first, and added by the engine's callback at the end of the pass. When
// many bytes are under way, the oldest are waited for. A bucket is under way once it is started.
#include "tegula/gradient/async_gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "tegula/payload/host_errors.h"

namespace tegula::inner {
namespace {

class AsyncGradients {
 public:
  AsyncGradients() = default;
  AsyncGradients(const AsyncGradients&) = delete;
  AsyncGradients& operator=(const AsyncGradients&) = delete;
  ~AsyncGradients() { restore(); }  // does nothing once they are finished

  void add(const at::Tensor& leaf, const PayloadPtr& reduced) {
    set_aside(leaf, reduced);
    alone_.push_back(reduced);
    // the sizes of wholes, so that all ranks wait for the same ones
    bytes_alone_ += bytes_of(*reduced);
    const Gathering* gathering = payload_in(leaf)->gathering();
    const std::int64_t most = gathering ? gathering->most_bytes : kMostBytes;
    while (bytes_alone_ > most && alone_.size() > 1) {
      alone_.front()->tile();
      bytes_alone_ -= bytes_of(*alone_.front());
      alone_.pop_front();
    }
  }

  PayloadPtr add(OwedGradient gradient, const BucketOptionsPtr& options) {
    const at::Tensor leaf = gradient.leaf;
    const DTensorSpec wanted = gradient.wanted;
    const std::shared_ptr<Bucket> bucket = bucket_for(gradient, options);
    PayloadPtr reduced = c10::make_intrusive<Payload>(bucket->add(std::move(gradient)), wanted,
                                                      payload_in(leaf)->world());
    set_aside(leaf, reduced);
    if (bucket->is_full()) start(bucket);
    return reduced;
  }

  at::Tensor take(const at::Tensor& leaf) {
    at::Tensor earlier = leaf.grad();
    leaf.mutable_grad() = at::Tensor();
    taken_.push_back({leaf, earlier});
    return earlier;
  }

  void finish() {
    const at::NoGradGuard no_grad;
    while (!filling_.empty()) start(filling_.front());
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
  // Of gradients under way by themselves, each of which is there twice meanwhile, before and after
  // its reduction, unless their leaves say another number; and of buckets.
  static constexpr std::int64_t kMostBytes = std::int64_t{32} << 20U;
  static constexpr std::int64_t kMostBytesInBuckets = std::int64_t{16} << 20U;

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

  void set_aside(const at::Tensor& leaf, const PayloadPtr& reduced) {
    at::Tensor earlier = leaf.grad();
    leaf.mutable_grad() = at::Tensor();
    under_way_.push_back({leaf, reduced, std::move(earlier)});
  }

  // One that has room for the gradient. One that has none for it is started.
  std::shared_ptr<Bucket> bucket_for(const OwedGradient& gradient,
                                     const BucketOptionsPtr& options) {
    for (std::size_t k = 0; k < filling_.size(); ++k) {
      const std::shared_ptr<Bucket> bucket = filling_[k];
      if (!bucket->is_for(gradient, options)) continue;
      if (bucket->has_room_for(gradient)) return bucket;
      start(bucket);
      break;
    }
    return filling_.emplace_back(std::make_shared<Bucket>(gradient, options));
  }

  void start(std::shared_ptr<Bucket> bucket) {
    std::erase(filling_, bucket);
    bucket->start();
    bytes_in_buckets_ += bucket->bytes();
    started_.push_back(std::move(bucket));
    while (bytes_in_buckets_ > kMostBytesInBuckets && started_.size() > 1) {
      started_.front()->wait();
      bytes_in_buckets_ -= started_.front()->bytes();
      started_.pop_front();
    }
  }

  void restore() {
    for (const std::shared_ptr<Bucket>& bucket : filling_) bucket->drop();
    filling_.clear();
    for (UnderWay& one : under_way_) one.leaf.mutable_grad() = one.earlier;
    for (Taken& one : taken_) one.leaf.mutable_grad() = one.earlier;
    under_way_.clear();
    taken_.clear();
  }

  std::vector<UnderWay> under_way_;
  std::vector<Taken> taken_;
  // What has not been waited for yet, the oldest first: gradients by themselves, of so many bytes
  // as wholes, and buckets that are started.
  std::deque<PayloadPtr> alone_;
  std::int64_t bytes_alone_ = 0;
  std::deque<std::shared_ptr<Bucket>> started_;
  std::int64_t bytes_in_buckets_ = 0;
  std::vector<std::shared_ptr<Bucket>> filling_;  // in the order in which they were begun
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
        [gradients] { with_host_errors([&] { gradients->finish(); }); });
    current = gradients;
    pass = running;
  }
  return gradients;
}

}  // namespace

void finish_when_backward_ends(const at::Tensor& leaf, const PayloadPtr& reduced) {
  gradients_of_this_pass()->add(leaf, reduced);
}

PayloadPtr reduce_in_bucket(OwedGradient gradient, const BucketOptionsPtr& options) {
  return gradients_of_this_pass()->add(std::move(gradient), options);
}

at::Tensor take_gradient(const at::Tensor& leaf) { return gradients_of_this_pass()->take(leaf); }

}  // namespace tegula::inner
