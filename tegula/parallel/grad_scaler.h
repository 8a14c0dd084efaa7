// Loss scaling: small gradients of f16 survive, and steps with gradients that are not finite are
// left out, on all ranks alike.
//
//   GradScaler scaler;
//   scaler.scaled(loss).backward();
//   scaler.unscale_(optimizer);                       // only if gradients are clipped or looked at
//   clip_grad_norm_(model->parameters(), 1.0);
//   scaler.step(optimizer);                           // or not
//   scaler.update();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tegula/comm/group.h"

namespace torch::optim {
class Optimizer;
}

namespace tegula {

struct GradScalerOptions {
  double scale = 65536;  // to begin with
  double growth = 2;     // after `interval` steps in a row with finite gradients
  double backoff = 0.5;  // after one without
  std::int64_t interval = 2000;
  // Who has to agree; empty: the ranks of the meshes of the gradients. Ranks that hold different
  // parameters (stages of a pipeline, say) name the group that they form together.
  std::optional<Group> among = std::nullopt;
};

// What a checkpoint has to keep.
struct GradScalerState {
  double scale = 0;
  std::int64_t finite_steps = 0;  // in a row
  bool operator==(const GradScalerState&) const = default;
};

// All ranks make the same calls. Several optimizers may share one; each has its own verdict, and
// update() heeds all of them.
class GradScaler {
 public:
  // UsageError: a scale that is not positive and finite, growth below 1, backoff outside of (0, 1],
  // an interval below 1.
  explicit GradScaler(GradScalerOptions options = {});

  at::Tensor scaled(const at::Tensor& loss) const;

  // Divides the gradients of the optimizer's parameters by the scale, in place, whatever meshes
  // they are on, plain ones too; reductions that they still owe are done first. Gives the verdict:
  // whether all elements on all ranks are finite. One collective of one number; none if all are
  // plain. UsageError if it was called since the last update().
  bool unscale_(torch::optim::Optimizer& optimizer);

  // unscale_, unless it was called; then the optimizer's step if the verdict is good, else nothing.
  // Gives the verdict. UsageError if it was called since the last update().
  bool step(torch::optim::Optimizer& optimizer);

  // Makes the scale smaller or larger by the verdicts since the last call. UsageError if there are
  // none.
  void update();

  double scale() const { return state_.scale; }
  GradScalerState state() const { return state_; }
  void restore(const GradScalerState& state);

 private:
  struct Verdict {
    bool is_finite = true;
    bool is_stepped = false;
  };
  bool all_finite(const std::vector<at::Tensor>& gradients) const;

  GradScalerOptions options_;
  GradScalerState state_;
  std::map<const torch::optim::Optimizer*, Verdict> verdicts_;
};

}  // namespace tegula
