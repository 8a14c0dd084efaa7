// A bucket of gradients that are reduced together.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tegula/gradient/owed_all_reduce.h"
#include "tegula/payload/payload.h"
#include "tegula/redistribute/async_tile.h"

namespace tegula::inner {

// A gradient that owes one all-reduce.
struct OwedGradient {
  at::Tensor leaf;
  at::Tensor tile;  // in the type that it travels in, contiguous; nobody else has it
  DTensorSpec wanted;
  OwedAllReduce owed;

  std::int64_t bytes() const { return static_cast<std::int64_t>(tile.nbytes()); }
};

// Filled by one thread, the one that runs the backward pass; then any thread may wait for it. All
// ranks of the group fill and start their buckets in the same order.
class Bucket : public std::enable_shared_from_this<Bucket> {
 public:
  // Empty, for gradients like this one.
  Bucket(const OwedGradient& first, BucketOptionsPtr options);

  // Whether gradients like this one belong here.
  bool is_for(const OwedGradient& gradient, const BucketOptionsPtr& options) const;
  // A bucket that has been started has no room.
  bool has_room_for(const OwedGradient& gradient) const;
  // The tile that it will be. Who waits for that starts the bucket if nobody has yet, so that all
  // ranks of the group do, or none, before the pass ends.
  AsyncTile add(OwedGradient gradient);
  std::int64_t bytes() const { return bytes_; }
  bool is_full() const { return bytes_ >= options_->bytes; }

  // Has the gradients reduced, without waiting. Does nothing the second time.
  void start();
  // Waits until they are. Throws what the reduction met, each time.
  void wait();
  // A bucket that has not been started never will be: who waits for it gets a UsageError.
  void drop();

 private:
  enum class State : std::uint8_t { Filling, Starting, UnderWay, Ending, Done, Failed };
  // The reduced tiles, in the type that they travelled in. Waits.
  using Finish = std::function<std::vector<at::Tensor>()>;

  at::Tensor take(std::size_t place);
  Finish started_all_reduce() const;
  Finish started_hook() const;
  // Runs a step; what it throws is what everybody gets from then on.
  template <class Step>
  void or_fail(Step step);

  const OwedAllReduce owed_;
  const at::ScalarType type_;
  const BucketOptionsPtr options_;
  const World world_;
  mutable std::recursive_mutex mutex_;  // a hook that reads one of its gradients gets an error
  State state_ = State::Filling;
  std::vector<at::Tensor> leaves_, tiles_;  // until it is started
  std::vector<DTensorSpec> wanted_;
  std::int64_t bytes_ = 0;
  Finish finish_;
  std::vector<at::Tensor> reduced_;  // each until it is taken
  std::exception_ptr error_;
};

}  // namespace tegula::inner
