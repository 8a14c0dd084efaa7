#include "tegula/parallel/muon.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/parallel/optimizer_tiles.h"
#include "tegula/parallel/owners.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

// p(s) = a s + b s^3 + c s^5 takes singular values of (0, 1] towards 1; c is as large as it may be
// without losing that, so that small ones grow fast.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;

at::Tensor orthogonalized(const at::Tensor& matrix, const MuonOptions& options) {
  if (matrix.numel() == 0) return matrix;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = is_tall ? matrix.t() : matrix;  // products of the shorter side are the smaller
  x = x / x.norm().clamp_min(options.eps());
  for (std::int64_t k = 0; k < options.iterations(); ++k) {
    const at::Tensor square = at::mm(x, x.t());
    const at::Tensor inner = at::addmm(square, square, square, kCubic, kQuintic);
    x = at::addmm(x, inner, x, kLinear, 1);
  }
  return is_tall ? x.t().contiguous() : x;
}

double scale_of(const at::Tensor& matrix, MuonScale scale) {
  const auto rows = static_cast<double>(matrix.size(0));
  const auto columns = static_cast<double>(matrix.size(1));
  switch (scale) {
    case MuonScale::ByShape:
      return std::sqrt(std::max(1.0, rows / std::max(columns, 1.0)));
    case MuonScale::AsAdamW:
      return 0.2 * std::sqrt(std::max(rows, columns));
  }
  return 1;
}

// Of one iteration.
double cost_of(const at::Tensor& matrix) {
  const auto rows = static_cast<double>(matrix.size(0));
  const auto columns = static_cast<double>(matrix.size(1));
  return rows * columns * std::min(rows, columns);
}

// A matrix on its way through a step.
struct Matrix {
  at::Tensor parameter;
  const MuonOptions* options = nullptr;
  MuonParamState* state = nullptr;
  at::Tensor momentum;   // the next one, placed as the parameter
  at::Tensor direction;  // what is made orthogonal
  at::Tensor update;     // tile of the result
};

void check_is_matrix(const at::Tensor& parameter) {
  if (parameter.dim() == 2 && parameter.is_floating_point()) return;
  throw UsageError("Muon takes matrices of real numbers only")
      .fact("parameter", bracketed(parameter.sizes().vec()))
      .hint("put it in a group with torch::optim::AdamWOptions, as muon_groups does");
}

MuonParamState& state_of(const at::Tensor& parameter, OptimizerStates& states) {
  auto& held = states[parameter.unsafeGetTensorImpl()];
  if (!held) {
    auto made = std::make_unique<MuonParamState>();
    made->momentum_buffer(at::zeros_like(parameter));
    held = std::move(made);
  }
  return static_cast<MuonParamState&>(*held);
}

Matrix begun(const ParameterWithGradient& one, const MuonOptions& options,
             OptimizerStates& states) {
  MuonParamState& state = state_of(one.parameter, states);
  const double weight = 1 - options.momentum();
  at::Tensor momentum = at::lerp(state.momentum_buffer(), one.gradient, weight);
  at::Tensor direction = options.nesterov() ? at::lerp(momentum, one.gradient, weight) : momentum;
  return {one.parameter, &options, &state, std::move(momentum), std::move(direction), {}};
}

void make_orthogonal(std::vector<Matrix>& matrices) {
  std::vector<OwnedWork> work;
  std::vector<Matrix*> owned;
  for (Matrix& matrix : matrices) {
    if (is_dtensor(matrix.direction)) {
      work.push_back({matrix.direction, cost_of(matrix.direction)});
      owned.push_back(&matrix);
    } else {
      matrix.update = orthogonalized(matrix.direction, *matrix.options);
    }
  }
  const std::vector<at::Tensor> tiles =
      on_owners(work, [&](const at::Tensor& whole, std::size_t which) {
        return orthogonalized(whole, *owned[which]->options);
      });
  for (std::size_t k = 0; k < owned.size(); ++k) owned[k]->update = tiles[k];
}

void apply(const Matrix& matrix) {
  const MuonOptions& options = *matrix.options;
  const at::Tensor tile = tile_or_plain(matrix.parameter);
  note_write(matrix.parameter);
  tile_or_plain(matrix.state->momentum_buffer()).copy_(tile_or_plain(matrix.momentum));
  tile.mul_(1 - options.lr() * options.weight_decay());
  tile.add_(matrix.update, -options.lr() * scale_of(matrix.parameter, options.scale()));
}

void check_options(const torch::optim::OptimizerParamGroup& group) {
  if (!group.has_options()) return;
  const torch::optim::OptimizerOptions& options = group.options();
  if (dynamic_cast<const MuonOptions*>(&options) ||
      dynamic_cast<const torch::optim::AdamWOptions*>(&options)) {
    return;
  }
  throw UsageError("a parameter group of Muon has the options of another optimizer")
      .hint("give MuonOptions or torch::optim::AdamWOptions");
}

}  // namespace

Muon::Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups,
           const MuonOptions& defaults)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>{},
                              std::make_unique<MuonOptions>(defaults)) {
  for (const torch::optim::OptimizerParamGroup& group : groups) {
    check_options(group);
    add_param_group(group);
    // libtorch may mix options that it does not know with the defaults
    if (group.has_options()) param_groups_.back().set_options(group.options().clone());
  }
}

Muon::Muon(std::vector<at::Tensor> matrices, const MuonOptions& defaults)
    : Muon({torch::optim::OptimizerParamGroup(std::move(matrices))}, defaults) {}

at::Tensor Muon::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  std::vector<Matrix> matrices;
  std::vector<std::pair<std::vector<ParameterWithGradient>, const torch::optim::AdamWOptions*>>
      others;
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) {
    const std::vector<ParameterWithGradient> parameters = with_gradients(group.params());
    const auto* options = dynamic_cast<const MuonOptions*>(&group.options());
    if (!options) {
      others.emplace_back(parameters,
                          static_cast<const torch::optim::AdamWOptions*>(&group.options()));
      continue;
    }
    for (const ParameterWithGradient& one : parameters) check_is_matrix(one.parameter);
    for (const ParameterWithGradient& one : parameters) {
      matrices.push_back(begun(one, *options, state_));
    }
  }
  make_orthogonal(matrices);
  for (const Matrix& matrix : matrices) apply(matrix);
  for (const auto& [parameters, options] : others) adamw_step(parameters, *options, state_);
  return loss;
}

std::vector<torch::optim::OptimizerParamGroup> muon_groups(
    const torch::nn::Module& module, const MuonOptions& muon,
    const torch::optim::AdamWOptions& adamw) {
  std::set<c10::TensorImpl*> embeddings;
  for (const std::shared_ptr<torch::nn::Module>& one : module.modules(/*include_self=*/false)) {
    if (!one->as<torch::nn::EmbeddingImpl>() && !one->as<torch::nn::EmbeddingBagImpl>()) continue;
    for (const at::Tensor& parameter : one->parameters()) {
      embeddings.insert(parameter.unsafeGetTensorImpl());
    }
  }
  std::vector<at::Tensor> matrices, others;
  std::set<c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const bool is_matrix =
        parameter.dim() == 2 && !embeddings.contains(parameter.unsafeGetTensorImpl());
    (is_matrix ? matrices : others).push_back(parameter);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, std::make_unique<MuonOptions>(muon));
  groups.emplace_back(others, std::make_unique<torch::optim::AdamWOptions>(adamw));
  return groups;
}

}  // namespace tegula
