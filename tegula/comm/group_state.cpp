#include "tegula/comm/group_state.h"

namespace tegula::inner::comm {

Engine& GroupState::new_engine() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!engine_) {
    if (!make_engine) {
      throw CommError("the world of this group is gone")
          .fact("group", name)
          .hint("keep the World as long as its groups are used");
    }
    engine_ = make_engine(timeout);
    ready_.store(engine_.get(), std::memory_order_release);
  }
  return *engine_;
}

std::shared_ptr<Engine> GroupState::engine_at_hand() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return engine_;
}

std::shared_ptr<Engine> GroupState::retire_engine(const CommError& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (engine_) engine_->abort(error);
  ready_.store(nullptr, std::memory_order_release);
  return std::move(engine_);
}

}  // namespace tegula::inner::comm
