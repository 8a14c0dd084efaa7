// A tile that may be under way.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "tegula/comm/group.h"

namespace tegula::inner {

// Copies mean the same tile. Any thread may use it.
class AsyncTile {
 public:
  // Here already.
  explicit AsyncTile(at::Tensor tile);
  // `finish` makes the tile from what the call gives; it runs once, in the first thread that waits.
  AsyncTile(Pending call, std::function<at::Tensor(const at::Tensor&)> finish);
  // `make` waits for the tile. It runs in the first thread that waits, and again if it threw.
  explicit AsyncTile(std::function<at::Tensor()> make);

  // The tile, the same each time. Throws what the call met, each time.
  at::Tensor wait() const;
  // Whether wait() is known not to wait for other ranks.
  bool is_done() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tegula::inner
