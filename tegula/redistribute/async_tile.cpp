#include "tegula/redistribute/async_tile.h"

#include <mutex>
#include <optional>

namespace tegula::inner {

struct AsyncTile::State {
  std::mutex mutex;
  std::optional<Pending> call;  // none once the tile is here
  std::function<at::Tensor(const at::Tensor&)> finish;
  at::Tensor tile;
};

AsyncTile::AsyncTile(at::Tensor tile) : state_(std::make_shared<State>()) {
  state_->tile = std::move(tile);
}

AsyncTile::AsyncTile(Pending call, std::function<at::Tensor(const at::Tensor&)> finish)
    : state_(std::make_shared<State>()) {
  state_->call = std::move(call);
  state_->finish = std::move(finish);
}

at::Tensor AsyncTile::wait() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->call) {
    state_->tile = state_->finish(state_->call->wait());
    state_->call.reset();
    state_->finish = nullptr;
  }
  return state_->tile;
}

bool AsyncTile::is_done() const {
  const std::unique_lock<std::mutex> lock(state_->mutex, std::try_to_lock);
  if (!lock) return false;  // somebody waits
  return !state_->call || state_->call->is_done();
}

}  // namespace tegula::inner
