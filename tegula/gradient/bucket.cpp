// The idea: a bucket without a hook is one coalesced all-reduce of the tiles as they are, in place,
// so nothing is copied or allocated. Only a hook needs them in one piece: that costs a copy there
// and one back.
#include "tegula/gradient/bucket.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/recovery.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"

namespace tegula::inner {
namespace {

GradientBucket joined(const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& tiles,
                      const Group& group) {
  std::int64_t count = 0;
  for (const at::Tensor& tile : tiles) count += tile.numel();
  GradientBucket bucket{at::empty({count}, tiles.front().options()), {}, leaves, group};
  std::int64_t begin = 0;
  for (const at::Tensor& tile : tiles) {
    at::Tensor part = bucket.flat.narrow(0, begin, tile.numel()).view(tile.sizes());
    part.copy_(tile);
    bucket.gradients.push_back(std::move(part));
    begin += tile.numel();
  }
  return bucket;
}

// In memory of its own.
at::Tensor as_tile(const at::Tensor& reduced, const DTensorSpec& spec, const Coordinate& at) {
  const bool is_apart = reduced.storage().nbytes() == reduced.nbytes();
  const bool is_typed = reduced.scalar_type() == scalar_type_of(spec.meta().dtype());
  if (is_apart && is_typed) return in_tile_layout(reduced, spec, at);
  return new_tile(spec, at).copy_(reduced);
}

// Runs a step of the user's hook. Ranks that wait for this one learn what it threw.
template <class Step>
auto told_to_others(const World& world, const Group& group, Step step) {
  try {
    return step();
  } catch (...) {
    const std::vector<std::int64_t> ranks(group.ranks().begin(), group.ranks().end());
    comm::note_error(world, ranks,
                     "the hook of a gradient bucket: " + sentence_of(std::current_exception()));
    throw;
  }
}

}  // namespace

Bucket::Bucket(const OwedGradient& first, BucketOptionsPtr options)
    : owed_(first.owed),
      type_(first.tile.scalar_type()),
      options_(std::move(options)),
      world_(payload_in(first.leaf)->world()) {}

bool Bucket::is_for(const OwedGradient& gradient, const BucketOptionsPtr& options) const {
  const Group& group = gradient.owed.group;
  return options == options_ && gradient.owed.op == owed_.op &&
         gradient.tile.scalar_type() == type_ && group.ranks() == owed_.group.ranks() &&
         group.name() == owed_.group.name();
}

bool Bucket::has_room_for(const OwedGradient& gradient) const {
  const std::lock_guard lock(mutex_);
  if (state_ != State::Filling) return false;
  return tiles_.empty() || bytes_ + gradient.bytes() <= options_->bytes;
}

AsyncTile Bucket::add(OwedGradient gradient) {
  const std::lock_guard lock(mutex_);
  const std::size_t place = tiles_.size();
  bytes_ += gradient.bytes();
  leaves_.push_back(std::move(gradient.leaf));
  tiles_.push_back(std::move(gradient.tile));
  wanted_.push_back(std::move(gradient.wanted));
  return AsyncTile([bucket = shared_from_this(), place] { return bucket->take(place); });
}

template <class Step>
void Bucket::or_fail(Step step) {
  try {
    step();
  } catch (...) {
    error_ = std::current_exception();
    state_ = State::Failed;
    finish_ = nullptr;
    throw;
  }
}

void Bucket::start() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::Starting || state_ == State::Ending) {
    throw UsageError("the hook of a gradient bucket reads a gradient that it has to reduce")
        .hint("the gradients are in bucket.gradients");
  }
  if (state_ != State::Filling) return;
  state_ = State::Starting;
  or_fail([&] {
    const at::NoGradGuard no_grad;
    const CommLabel label("gradient of a leaf", CommLabel::Reach::OverInnerLabels);
    finish_ = options_->hook ? started_hook() : started_all_reduce();
    state_ = State::UnderWay;
  });
  leaves_.clear();
  tiles_.clear();  // the call has what it needs
}

Bucket::Finish Bucket::started_all_reduce() const {
  const BelowAutograd below;
  if (tiles_.size() == 1) {
    return [call = owed_.group.all_reduce_async_(tiles_.front(), owed_.op)] {
      return std::vector<at::Tensor>{call.wait()};
    };
  }
  return [call = owed_.group.all_reduce_coalesced_async_(tiles_, owed_.op)] { return call.wait(); };
}

Bucket::Finish Bucket::started_hook() const {
  const GradientBucket bucket = joined(leaves_, tiles_, owed_.group);
  std::function<void()> end =
      told_to_others(world_, owed_.group, [&] { return options_->hook(bucket); });
  return [end = std::move(end), gradients = bucket.gradients, world = world_, group = owed_.group] {
    if (end) told_to_others(world, group, [&] { end(); });
    return gradients;
  };
}

void Bucket::wait() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  start();
  if (state_ == State::Done) return;
  state_ = State::Ending;
  or_fail([&] {
    const at::NoGradGuard no_grad;
    const CommLabel label("gradient of a leaf", CommLabel::Reach::OverInnerLabels);
    std::vector<at::Tensor> received = std::exchange(finish_, nullptr)();
    const BelowAutograd below;
    for (std::size_t k = 0; k < received.size(); ++k) {
      const Coordinate at = *wanted_[k].mesh().coordinate_of(world_.rank());
      reduced_.push_back(as_tile(std::exchange(received[k], {}), wanted_[k], at));
    }
    state_ = State::Done;
  });
}

at::Tensor Bucket::take(std::size_t place) {
  const std::lock_guard lock(mutex_);
  wait();
  return std::exchange(reduced_[place], {});
}

void Bucket::drop() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::Filling) return;
  state_ = State::Failed;
  error_ = std::make_exception_ptr(
      UsageError("a gradient was not reduced, since the backward pass that made it failed")
          .hint("zero_grad() and run the pass again"));
  leaves_.clear();
  tiles_.clear();
}

}  // namespace tegula::inner
