// The idea: each rank unscales its tiles and looks at them in one pass; what all have found is the
// maximum of what each has found, one number.
#include "tegula/parallel/grad_scaler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <cmath>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/parallel/parameter_gradients.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

void check(bool is_right, const char* option, double value, const char* hint) {
  if (is_right) return;
  throw UsageError("a gradient scaler cannot work with this option")
      .fact(option, std::to_string(value))
      .hint(hint);
}

void check_scale(double scale) {
  check(std::isfinite(scale) && scale > 0, "scale", scale, "give a finite number above 0");
}

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(std::move(options)) {
  check_scale(options_.scale);
  check(options_.growth >= 1 && std::isfinite(options_.growth), "growth", options_.growth,
        "give 1 or more");
  check(options_.backoff > 0 && options_.backoff <= 1, "backoff", options_.backoff,
        "give more than 0 and at most 1");
  check(options_.interval >= 1, "interval", static_cast<double>(options_.interval),
        "give 1 or more steps");
  state_.scale = options_.scale;
}

void GradScaler::restore(const GradScalerState& state) {
  check_scale(state.scale);
  state_ = state;
}

at::Tensor GradScaler::scaled(const at::Tensor& loss) const { return loss * state_.scale; }

bool GradScaler::all_finite(const std::vector<at::Tensor>& gradients) const {
  const at::NoGradGuard no_grad;
  at::Tensor found = at::zeros({1});
  const at::Tensor inverse = at::full({1}, 1 / state_.scale);
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor tile = is_dtensor(gradient) ? to_local(gradient) : gradient;
    if (tile.numel() > 0) at::_amp_foreach_non_finite_check_and_unscale_(tile, found, inverse);
  }
  const std::optional<Group> group = options_.among ? options_.among : group_of_meshes(gradients);
  const CommLabel label("are gradients finite");
  if (group) group->all_reduce_(found, ReduceOp::Max);
  return found.item<float>() == 0;
}

bool GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (verdicts_.contains(&optimizer)) {
    throw UsageError("gradients cannot be unscaled twice")
        .hint("call update() after the optimizer's step, before the next unscale_");
  }
  const bool is_finite = all_finite(gradients_of(parameters_of(optimizer)));
  verdicts_[&optimizer] = {is_finite, false};
  return is_finite;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!verdicts_.contains(&optimizer)) unscale_(optimizer);
  Verdict& verdict = verdicts_.at(&optimizer);
  if (verdict.is_stepped) {
    throw UsageError("an optimizer cannot make two steps by gradients that were scaled once")
        .hint("call update() after each step");
  }
  verdict.is_stepped = true;
  if (verdict.is_finite) optimizer.step();
  return verdict.is_finite;
}

void GradScaler::update() {
  if (verdicts_.empty()) {
    throw UsageError("a gradient scaler cannot be updated before a step").hint("call step first");
  }
  bool all = true;
  for (const auto& [optimizer, verdict] : verdicts_) all = all && verdict.is_finite;
  verdicts_.clear();
  state_.finite_steps = all ? state_.finite_steps + 1 : 0;
  if (!all) state_.scale *= options_.backoff;
  if (state_.finite_steps < options_.interval) return;
  state_.finite_steps = 0;
  const double larger = state_.scale * options_.growth;
  if (std::isfinite(static_cast<float>(larger))) state_.scale = larger;
}

}  // namespace tegula
