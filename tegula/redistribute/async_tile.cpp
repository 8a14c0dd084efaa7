#include "tegula/redistribute/async_tile.h"

#include <mutex>
#include <optional>

namespace tegula::inner {

struct AsyncTile::State {
  std::recursive_mutex mutex;        // `make` may run code that asks for the tile, and throw there
  std::function<at::Tensor()> make;  // null once the tile is here
  std::optional<Pending> call;       // that it waits for, if that is known
  at::Tensor tile;
};

AsyncTile::AsyncTile(at::Tensor tile) : state_(std::make_shared<State>()) {
  state_->tile = std::move(tile);
}

AsyncTile::AsyncTile(Pending call, std::function<at::Tensor(const at::Tensor&)> finish)
    : state_(std::make_shared<State>()) {
  state_->call = call;
  state_->make = [call = std::move(call), finish = std::move(finish)] {
    return finish(call.wait());
  };
}

AsyncTile::AsyncTile(std::function<at::Tensor()> make) : state_(std::make_shared<State>()) {
  state_->make = std::move(make);
}

at::Tensor AsyncTile::wait() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->make) {
    state_->tile = state_->make();
    state_->call.reset();
    state_->make = nullptr;
  }
  return state_->tile;
}

bool AsyncTile::is_done() const {
  const std::unique_lock lock(state_->mutex, std::try_to_lock);
  if (!lock) return false;  // somebody waits
  return !state_->make || (state_->call && state_->call->is_done());
}

}  // namespace tegula::inner
