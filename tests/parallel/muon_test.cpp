// Muon makes the steps of one rank, each matrix on one rank.
#include "tegula/parallel/muon.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/schedulers/step_lr.h>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/owners.h"
#include "tests/parallel/placed_parameters.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace muon_test {

namespace optim = torch::optim;

std::vector<optim::OptimizerParamGroup> groups_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& one : parameters) (one.dim() == 2 ? matrices : others).push_back(one);
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices);
  groups.emplace_back(others, std::make_unique<optim::AdamWOptions>(0.05));
  return groups;
}

// By the definition, on plain matrices.
class ByDefinition {
 public:
  ByDefinition(std::vector<at::Tensor> matrices, MuonOptions options)
      : matrices_(std::move(matrices)), options_(std::move(options)) {
    for (const at::Tensor& one : matrices_) buffers_.push_back(at::zeros_like(one));
  }
  void step() {
    const at::NoGradGuard no_grad;
    const double b = options_.momentum();
    for (std::size_t k = 0; k < matrices_.size(); ++k) {
      const at::Tensor p = matrices_[k], g = p.grad();
      at::Tensor& m = buffers_[k];
      m = b * m + (1 - b) * g;
      at::Tensor u = options_.nesterov() ? b * m + (1 - b) * g : m;
      u = u / u.norm();
      for (int i = 0; i < 5; ++i) {
        // the singular values by themselves
        const auto [left, values, right] = at::linalg_svd(u, /*full_matrices=*/false);
        const at::Tensor next = 3.4445 * values - 4.7750 * values.pow(3) + 2.0315 * values.pow(5);
        u = at::mm(left * next, right);
      }
      const double rows = static_cast<double>(p.size(0)), columns = static_cast<double>(p.size(1));
      const double scale = options_.scale() == MuonScale::AsAdamW
                               ? 0.2 * std::sqrt(std::max(rows, columns))
                               : std::sqrt(std::max(1.0, rows / columns));
      p.copy_((1 - options_.lr() * options_.weight_decay()) * p - options_.lr() * scale * u);
    }
  }

 private:
  std::vector<at::Tensor> matrices_;
  MuonOptions options_;
  std::vector<at::Tensor> buffers_;
};

TEST(Muon, IsItsDefinition) {
  for (const MuonOptions& options :
       {MuonOptions(0.02), MuonOptions(0.02).nesterov(false).scale(MuonScale::AsAdamW)}) {
    std::vector<at::Tensor> ours, plain;
    for (const auto& shape :
         std::vector<std::vector<std::int64_t>>{{3, 5}, {6, 2}, {4, 4}, {1, 3}}) {
      ours.push_back(leaf(shape));
      plain.push_back(leaf(shape));
    }
    Muon muon(ours, options);
    ByDefinition definition(plain, options);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      for (std::size_t k = 0; k < ours.size(); ++k) {
        ours[k].mutable_grad() = numbers(ours[k].sizes(), 10 * step + k);
        plain[k].mutable_grad() = ours[k].grad().clone();
      }
      muon.step();
      definition.step();
    }
    for (std::size_t k = 0; k < ours.size(); ++k) {
      EXPECT_EQ(difference(ours[k].detach(), plain[k].detach()), "");
    }
  }
}

TEST(Muon, MakesTheStepsOfOneRankInOneExchangeEachWay) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  on_a_grid([](World& world, const DeviceMesh& mesh) {
    PlacedParameters parameters(mesh);
    Muon ours(groups_of(parameters.ours), MuonOptions(0.1));
    Muon plain(groups_of(parameters.plain), MuonOptions(0.1));
    optim::StepLR ours_rate(ours, 2, 0.5);
    optim::StepLR plain_rate(plain, 2, 0.5);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      parameters.set_gradients(step);
      const CommLog log(world);
      ours.step();
      EXPECT_EQ(log.size(), 2U) << log.to_string();
      for (const CommEntry& entry : log.entries()) EXPECT_EQ(entry.kind, CommKind::AllToAll);
      plain.step();
      ours_rate.step();
      plain_rate.step();
    }
    parameters.expect_equal();
    EXPECT_DOUBLE_EQ(ours.param_groups()[1].options().get_lr(), 0.025);
  });
}

TEST(Muon, TakesSeveralDtypesAtOnce) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 3}});
    std::vector<at::Tensor> ours, plain;
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kFloat}) {
      const at::Tensor value = numbers({5, 3}).to(type), gradient = numbers({5, 3}, 2).to(type);
      plain.push_back(value.clone().requires_grad_());
      plain.back().mutable_grad() = gradient;
      ours.push_back(distribute_tensor(value, mesh, {Shard(1)}).requires_grad_());
      ours.back().mutable_grad() = distribute_tensor(gradient, mesh, {Shard(1)});
    }
    Muon(ours, MuonOptions(0.1)).step();
    Muon(plain, MuonOptions(0.1)).step();
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(difference(full_tensor(ours[k].detach()), plain[k].detach(), 1e-5), "");
    }
  });
}

// Three matrices of costs 4, 3 and 3 on two ranks: one has the first, the other both others.
TEST(Owners, AreGivenTheLongestFirst) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    std::vector<inner::OwnedWork> work;
    for (const double cost : {3.0, 4.0, 3.0}) {
      work.push_back({distribute_tensor(numbers({3, 2}), mesh, {Shard(0)}), cost});
    }
    std::vector<std::size_t> mine;
    const std::vector<at::Tensor> tiles =
        inner::on_owners(work, [&](const at::Tensor& whole, std::size_t which) {
          mine.push_back(which);
          return whole * 2;
        });
    EXPECT_EQ(mine,
              world.rank() == 0 ? std::vector<std::size_t>{1} : (std::vector<std::size_t>{0, 2}));
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(difference(tiles[k], to_local(work[k].tensor) * 2), "");
    }
  });
}

TEST(Owners, AreNotSentWhatTheyHold) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  on_a_grid([](World& world, const DeviceMesh& mesh) {
    std::vector<inner::OwnedWork> work;
    for (std::uint64_t k = 1; k <= 4; ++k) {  // one for each rank
      work.push_back({distribute_tensor(numbers({4, 2}, k), mesh, {Replicate(), Shard(0)}), 1});
    }
    const CommLog log(world);
    const std::vector<at::Tensor> tiles =
        inner::on_owners(work, [&](const at::Tensor& whole, std::size_t) { return whole + 1; });
    // a half of 64 bytes to the other owner of this row; then halves of one to the three others
    EXPECT_EQ(log.entries()[0].bytes, 32) << log.to_string();
    EXPECT_EQ(log.entries()[1].bytes, 3 * 32) << log.to_string();
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(difference(tiles[k], to_local(work[k].tensor) + 1), "");
    }
  });
}

// What a fiber of a slice holds is its own.
TEST(Owners, LeaveFibersTheirOwnData) {
  on_a_grid([](World& world, const DeviceMesh& mesh) {
    const double mine = world.rank() < 2 ? 1 : 5;
    const at::Tensor tensor =
        from_local(at::full({2, 3}, mine, at::kDouble), mesh["tp"], {Shard(0)});
    const std::vector<at::Tensor> tiles = inner::on_owners(
        {{tensor, 1}}, [](const at::Tensor& whole, std::size_t) { return whole.square(); });
    EXPECT_EQ(difference(tiles[0], at::full({2, 3}, mine * mine, at::kDouble)), "");
  });
}

TEST(MuonGroups, ArePutTogetherByKindOfParameter) {
  struct Network : torch::nn::Module {
    Network()
        : tokens(register_module("tokens", torch::nn::Embedding(5, 4))),
          norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})))),
          up(register_module("up", torch::nn::Linear(4, 6))),
          head(register_parameter("head", tokens->weight)) {}
    torch::nn::Embedding tokens;
    torch::nn::LayerNorm norm;
    torch::nn::Linear up;
    at::Tensor head;  // tied
  } network;
  const auto groups = muon_groups(network);
  ASSERT_EQ(groups[0].params().size(), 1U);
  EXPECT_TRUE(groups[0].params()[0].is_same(network.up->weight));
  EXPECT_EQ(groups[1].params().size(), 4U);
}

TEST(Muon, RefusesWhatIsNoMatrixBeforeAnythingIsWritten) {
  on_a_grid([](World&, const DeviceMesh& mesh) {
    PlacedParameters parameters(mesh);
    Muon muon(parameters.ours, MuonOptions(0.1));
    parameters.set_gradients(1);
    const std::string text = error_of([&] { muon.step(); });
    EXPECT_TRUE(contains(text, "Muon takes matrices of real numbers only")) << text;
    parameters.expect_equal();
  });
  const std::string text = error_of([] {
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{leaf({2, 2})},
                        std::make_unique<optim::OptimizerOptions>());
    Muon{groups};
  });
  EXPECT_TRUE(contains(text, "the options of another optimizer")) << text;
}

}  // namespace muon_test
}  // namespace tegula
