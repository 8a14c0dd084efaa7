// Training that is saved and goes on elsewhere: the losses of a run that was never interrupted.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include <algorithm>

#include "tegula/io/checkpoint.h"
#include "tegula/tensor/module.h"
#include "tests/io/memory_files.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace optimizer_state_test {

using torch::optim::Optimizer;
using Files = std::shared_ptr<MemoryFiles>;
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>)>;

struct Model : torch::nn::Module {
  Model() {
    up = register_module("up", torch::nn::Linear(3, 4));
    down = register_module("down", torch::nn::Linear(4, 2));
    tied = register_parameter("tied", up->weight);  // stands in two places
    const at::NoGradGuard no_grad;
    std::uint64_t seed = 1;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(numbers(parameter.sizes(), seed++));
    }
  }
  at::Tensor loss(const at::Tensor& x) {
    return (down(at::tanh(up(x))) + tied.sum()).square().mean();
  }
  torch::nn::Linear up = nullptr, down = nullptr;
  at::Tensor tied;
};

// Four steps of training, of which the last are made with what was loaded.
struct Training {
  Training(const World& world, const DeviceMesh& on, const MakeOptimizer& make)
      : mesh(on), state(world) {
    model.to(at::kDouble);
    distribute_module(model, mesh, {{"up.*", {Shard(0)}}, {"down.weight", {Shard(1)}}});
    std::vector<at::Tensor> parameters;
    for (const auto& item : model.named_parameters()) {
      if (item.key() != "tied") parameters.push_back(item.value());
    }
    optimizer = make(std::move(parameters));
    state.add("model", model).add("optimizer", *optimizer, model).add("step", step);
  }
  double advance() {
    const at::Tensor x = distribute_tensor(numbers({6, 3}, 100 + static_cast<std::uint64_t>(step)),
                                           mesh, {Replicate()}, kSameOnAllRanks);
    const at::Tensor loss = optimizer->step([&] {
      optimizer->zero_grad();
      at::Tensor value = model.loss(x);
      value.backward();
      return value;
    });
    ++step;
    return loss.item<double>();
  }
  DeviceMesh mesh;
  Model model;
  std::unique_ptr<Optimizer> optimizer;
  std::int64_t step = 0;
  State state;
};

const std::map<std::string, MakeOptimizer>& optimizers() {
  using namespace torch::optim;
  static const std::map<std::string, MakeOptimizer> all = {
      {"SGD", [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.01).momentum(0.9)); }},
      {"Adam", [](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); }},
      {"AdamW", [](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01)); }},
      {"Adagrad", [](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.01)); }},
      {"RMSprop",
       [](auto p) {
         return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.5).centered(true));
       }},
      {"LBFGS", [](auto p) {
         return std::make_unique<LBFGS>(p, LBFGSOptions(0.1).max_iter(2).history_size(3));
       }}};
  return all;
}

std::vector<double> losses_of(Training& training, int steps) {
  std::vector<double> losses;
  for (int k = 0; k < steps; ++k) losses.push_back(training.advance());
  return losses;
}

TEST(OptimizerState, GoesOnWithTheLossesOfAnUnbrokenRun) {
  for (const auto& [name, make] : optimizers()) {
    const auto files = std::make_shared<MemoryFiles>();
    std::vector<double> unbroken;
    run_impatient(2, [&, &make = make](World& world) {
      Training training(world, world.mesh({{"tp", 2}}), make);
      losses_of(training, 2);
      save("run", training.state, {.files = files});
      const std::vector<double> losses = losses_of(training, 3);
      if (world.rank() == 0) unbroken = losses;
    });
    for (const int ranks : {2, 3}) {
      run_impatient(ranks, [&, &name = name, &make = make](World& world) {
        Training training(world, world.mesh({{"tp", ranks}}), make);
        load("run", training.state, {.files = files});
        EXPECT_EQ(training.step, 2);
        const std::vector<double> losses = losses_of(training, 3);
        for (std::size_t k = 0; k < losses.size(); ++k) {
          if (ranks == 2 && name != "LBFGS") {  // whose vectors come back by rows
            EXPECT_EQ(losses[k], unbroken[k]) << name << k;
          } else {
            EXPECT_NEAR(losses[k], unbroken[k], 1e-9) << name << k;
          }
        }
      });
    }
  }
}

MakeOptimizer adam_in_groups(double first_rate, std::size_t first_size) {
  return [=](std::vector<at::Tensor> parameters) {
    const auto cut = parameters.begin() + static_cast<long>(first_size);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), cut),
                        std::make_unique<torch::optim::AdamOptions>(first_rate));
    groups.emplace_back(std::vector<at::Tensor>(cut, parameters.end()),
                        std::make_unique<torch::optim::AdamOptions>(0.5));
    return std::make_unique<torch::optim::Adam>(groups);
  };
}

double rate_of(Optimizer& optimizer, std::size_t group) {
  return static_cast<torch::optim::AdamOptions&>(optimizer.param_groups()[group].options()).lr();
}

TEST(OptimizerState, OfOtherGroupsIsMatchedByTheParametersNames) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    Training saved(world, mesh, adam_in_groups(0.25, 2));
    saved.advance();
    save("run", saved.state, {.files = files});

    Training finer(world, mesh, adam_in_groups(0.001, 1));  // of four parameters: 1 and 3
    const std::string error = error_of([&] { load("run", finer.state, {.files = files}); });
    EXPECT_TRUE(contains(error,
                         "parameters of one group of \"optimizer\" had different lr: 0.25 "
                         "and, of \"down.weight\", 0.5"))
        << error;

    Training same(world, mesh, adam_in_groups(0.001, 2));
    load("run", same.state, {.files = files});
    EXPECT_EQ(rate_of(*same.optimizer, 0), 0.25);
    EXPECT_EQ(rate_of(*same.optimizer, 1), 0.5);
    EXPECT_EQ(same.optimizer->state().size(), 4u);
  });
}

TEST(OptimizerState, OfAnotherKindOrWithoutAKnownFormIsRefused) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(1, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 1}});
    Training adam(world, mesh, optimizers().at("Adam"));
    adam.advance();
    save("run", adam.state, {.files = files});
    Training other(world, mesh, optimizers().at("SGD"));
    EXPECT_TRUE(contains(error_of([&] { load("run", other.state, {.files = files}); }),
                         "\"optimizer\" was the state of \"Adam\", here is \"SGD\""));
    struct Own : torch::optim::Optimizer {
      struct Options : torch::optim::OptimizerCloneableOptions<Options> {};
      explicit Own(std::vector<at::Tensor> parameters)
          : Optimizer(std::move(parameters), std::make_unique<Options>()) {}
      at::Tensor step(LossClosure) override { return {}; }
    };
    Training own(world, mesh, [](auto parameters) { return std::make_unique<Own>(parameters); });
    EXPECT_TRUE(contains(error_of([&] { save("other", own.state, {.files = files}); }),
                         "the state of this optimizer has no known form"));
  });
}

TEST(OptimizerState, OfLbfgsFitsTheSameListOfParametersOnly) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    Training saved(world, mesh, optimizers().at("LBFGS"));
    saved.advance();
    save("run", saved.state, {.files = files});
    Training other(world, mesh, [](std::vector<at::Tensor> parameters) {
      std::ranges::reverse(parameters);
      return optimizers().at("LBFGS")(parameters);
    });
    const std::string error = error_of([&] { load("run", other.state, {.files = files}); });
    EXPECT_TRUE(contains(error, "had another list of parameters, of which LBFGS keeps vectors"))
        << error;
  });
}

TEST(OptimizerState, WithASwitchThatIsNotKnownHereIsRefused) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(1, [&](World& world) {
    Training saved(world, world.mesh({{"tp", 1}}), optimizers().at("Adam"));
    std::int64_t maximize = 0;
    saved.state.add("optimizer.groups.0.maximize", maximize);
    save("run", saved.state, {.step = 1, .files = files});
    maximize = 1;
    save("run", saved.state, {.step = 2, .files = files});
    Training other(world, world.mesh({{"tp", 1}}), optimizers().at("Adam"));
    load("run", other.state, {.step = 1, .files = files});
    const std::string error = error_of([&] { load("run", other.state, {.files = files}); });
    EXPECT_TRUE(
        contains(error, "the option maximize of \"optimizer\" is 1, which Adam does not have here"))
        << error;
  });
}

TEST(OptimizerState, IsLeftAloneWhereTheModelAloneIsAskedFor) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    Training saved(world, mesh, optimizers().at("Adam"));
    saved.advance();
    save("run", saved.state, {.files = files});
    Training fresh(world, mesh, optimizers().at("Adam"));
    load("run", fresh.state, {.only = {"model.**"}, .files = files});
    EXPECT_TRUE(fresh.optimizer->state().empty());
    EXPECT_EQ(fresh.step, 0);
    EXPECT_EQ(
        difference(full_tensor(fresh.model.up->weight), full_tensor(saved.model.up->weight), 0),
        "");
  });
}

TEST(OptimizerState, ThatIsAskedForInPartIsOtherwiseThatOfAFirstStep) {
  using Moments = torch::optim::AdamWParamState;
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    Training saved(world, mesh, optimizers().at("AdamW"));
    losses_of(saved, 2);
    save("run", saved.state, {.files = files});
    const auto moments_of = [](Training& training, std::size_t k) -> Moments& {
      const at::Tensor& parameter = training.optimizer->param_groups()[0].params()[k];
      return static_cast<Moments&>(
          *training.optimizer->state().at(parameter.unsafeGetTensorImpl()));
    };
    for (const std::string field : {"step", "exp_avg_sq"}) {
      Training fresh(world, mesh, optimizers().at("AdamW"));
      load("run", fresh.state, {.only = {"optimizer.**." + field}, .files = files});
      ASSERT_EQ(fresh.optimizer->state().size(), 4u) << field;
      for (std::size_t k = 0; k < 4; ++k) {
        Moments& loaded = moments_of(fresh, k);
        EXPECT_EQ(loaded.step(), field == "step" ? 2 : 0);
        EXPECT_TRUE(full_tensor(loaded.exp_avg()).eq(0).all().item<bool>());
        const at::Tensor squares = full_tensor(moments_of(saved, k).exp_avg_sq());
        const at::Tensor want = field == "step" ? at::zeros_like(squares) : squares;
        EXPECT_EQ(difference(full_tensor(loaded.exp_avg_sq()), want, 0), "");
      }
      fresh.advance();
    }
  });
}

}  // namespace optimizer_state_test
}  // namespace tegula
