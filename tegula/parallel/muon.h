// Muon: momentum whose matrices are made orthogonal, nearly, before they are applied.
//
//   Muon optimizer(muon_groups(*model, MuonOptions(0.02), torch::optim::AdamWOptions(3e-4)));
//
// A step of a matrix needs all of it. Here each matrix meets in one rank, which does all its
// iterations, and different ranks do different matrices: no rank computes what another does.
#pragma once

#include <torch/optim/adamw.h>

#include <cstdint>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tegula {

// How large a step of a [rows, columns] matrix is, times the learning rate.
enum class MuonScale : std::uint8_t {
  ByShape,  // sqrt(max(1, rows / columns))
  AsAdamW,  // 0.2 * sqrt(max(rows, columns)): about as large as AdamW's
};

struct MuonOptions : public torch::optim::OptimizerCloneableOptions<MuonOptions> {
  explicit MuonOptions(double lr = 1e-3) : lr_(lr) {}
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = true;
  TORCH_ARG(double, weight_decay) = 0.1;
  TORCH_ARG(std::int64_t, iterations) = 5;
  TORCH_ARG(double, eps) = 1e-7;  // the least norm that a matrix is divided by
  TORCH_ARG(MuonScale, scale) = MuonScale::ByShape;

 public:
  double get_lr() const override { return lr_; }
  void set_lr(double rate) override { lr_ = rate; }
};

struct MuonParamState : public torch::optim::OptimizerCloneableParamState<MuonParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);
};

// For a matrix with gradient g, momentum buffer m and the momentum b:
//
//   m <- b m + (1 - b) g
//   u  = orthogonalized(b m + (1 - b) g), of m alone without nesterov
//   p <- (1 - lr weight_decay) p - lr scale u
//
// u is the result of `iterations` steps of a Newton-Schulz iteration (a quintic whose coefficients
// take all singular values near 1), in the dtype of the parameter. Parameters in groups that have
// AdamWOptions are stepped by AdamW (adamw.h), so that one optimizer serves the whole model.
//
// Parameters are placed anyhow, on different meshes, or plain (then every rank computes its own);
// the momentum is cut as they are. A step is that of one rank. It sends each matrix once to its
// owner and its tiles of u back, in one all_to_all each way, and nothing is written before that.
// UsageError: options of another optimizer; in a step, before anything is written: a parameter of a
// Muon group that is no matrix, or what AdamW refuses.
class Muon : public torch::optim::Optimizer {
 public:
  explicit Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                const MuonOptions& defaults = MuonOptions());
  explicit Muon(std::vector<at::Tensor> matrices, const MuonOptions& defaults = MuonOptions());
  at::Tensor step(LossClosure closure = nullptr) override;
};

// Two groups: the matrices of a module, and what AdamW is for: vectors, tensors of more dims, and
// embeddings, also where another layer shares them.
std::vector<torch::optim::OptimizerParamGroup> muon_groups(
    const torch::nn::Module& module, const MuonOptions& muon = MuonOptions(),
    const torch::optim::AdamWOptions& adamw = {});

}  // namespace tegula
