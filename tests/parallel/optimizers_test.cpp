// Optimizers of libtorch and ours make the steps of one rank, wherever parameters are, and send
// nothing.
#include <gtest/gtest.h>
#include <torch/optim.h>

#include "tegula/comm/comm_log.h"
#include "tegula/gradient/gradients.h"
#include "tegula/parallel/adamw.h"
#include "tegula/tensor/module.h"
#include "tests/parallel/placed_parameters.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace optimizers_test {

namespace optim = torch::optim;

// Two groups: the first has other options than the rest.
template <class Options>
std::vector<optim::OptimizerParamGroup> groups_of(const std::vector<at::Tensor>& parameters,
                                                  const Options& first) {
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), parameters.begin() + 2),
                      std::make_unique<Options>(first));
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin() + 2, parameters.end()));
  return groups;
}

template <class Ours, class Theirs = Ours, class Options>
void expect_steps_of_one_rank(const Options& options) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  on_a_grid([&](World& world, const DeviceMesh& mesh) {
    PlacedParameters parameters(mesh);
    Options first = options;
    first.lr(0.003);
    Ours ours(groups_of(parameters.ours, first), options);
    Theirs plain(groups_of(parameters.plain, first), options);
    optim::StepLR ours_rate(ours, 2, 0.5);
    optim::StepLR plain_rate(plain, 2, 0.5);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      parameters.set_gradients(step);
      const CommLog log(world);
      ours.step();
      EXPECT_TRUE(log.empty()) << log.to_string();
      plain.step();
      ours_rate.step();
      plain_rate.step();
    }
    parameters.expect_equal();
    ours.zero_grad();
    for (const at::Tensor& one : parameters.ours) EXPECT_FALSE(one.grad().defined());
  });
}

TEST(Optimizers, MakeTheStepsOfOneRankAndSendNothing) {
  expect_steps_of_one_rank<optim::SGD>(optim::SGDOptions(0.1));
  expect_steps_of_one_rank<optim::SGD>(
      optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  expect_steps_of_one_rank<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).dampening(0.5));
  expect_steps_of_one_rank<optim::Adam>(optim::AdamOptions(0.1).weight_decay(0.01));
  expect_steps_of_one_rank<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true));
  expect_steps_of_one_rank<optim::AdamW>(optim::AdamWOptions(0.1).amsgrad(true));
  expect_steps_of_one_rank<optim::Adagrad>(
      optim::AdagradOptions(0.1).lr_decay(0.1).weight_decay(0.01));
  expect_steps_of_one_rank<optim::RMSprop>(
      optim::RMSpropOptions(0.1).momentum(0.5).centered(true).weight_decay(0.01));
}

// A loss that an optimizer may ask for at any parameters.
at::Tensor bowl(const std::vector<at::Tensor>& parameters) {
  at::Tensor loss;
  for (const at::Tensor& one : parameters) {
    const at::Tensor part = ((one - 0.3).square() * (1 + one.square())).sum();
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

TEST(Optimizers, LBFGSMakesTheStepsOfOneRank) {
  for (const bool searches : {false, true}) {
    on_a_grid([&](World&, const DeviceMesh& mesh) {
      PlacedParameters parameters(mesh);
      for (std::vector<at::Tensor>* list : {&parameters.ours, &parameters.plain}) {
        list->erase(list->begin() + 6);  // LBFGS makes one vector of all: one mesh
        list->pop_back();
      }
      auto options = optim::LBFGSOptions(0.5).max_iter(4);
      if (searches) options.line_search_fn("strong_wolfe");
      const auto run = [&](const std::vector<at::Tensor>& list) {
        optim::LBFGS optimizer(list, options);
        for (int step = 0; step < 2; ++step) {
          optimizer.step([&] {
            optimizer.zero_grad();
            const at::Tensor loss = bowl(list);
            loss.backward();
            return loss;
          });
        }
      };
      run(parameters.plain);
      run(parameters.ours);
      parameters.expect_equal(1e-7);
    });
  }
}

TEST(Optimizers, RatesThatFollowALossAreThoseOfOneRank) {
  on_a_grid([&](World&, const DeviceMesh& mesh) {
    PlacedParameters parameters(mesh);
    optim::SGD ours(parameters.ours, 0.1);
    optim::SGD plain(parameters.plain, 0.1);
    optim::ReduceLROnPlateauScheduler ours_rate(
        ours, optim::ReduceLROnPlateauScheduler::SchedulerMode::min, 0.5F, 0);
    optim::ReduceLROnPlateauScheduler plain_rate(
        plain, optim::ReduceLROnPlateauScheduler::SchedulerMode::min, 0.5F, 0);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      parameters.set_gradients(step);
      ours.step();
      plain.step();
      ours_rate.step(1.0F);
      plain_rate.step(1.0F);
    }
    EXPECT_LT(ours.param_groups()[0].options().get_lr(), 0.1);
    parameters.expect_equal();
  });
}

// --- AdamW

TEST(AdamW, MakesTheStepsOfLibtorchs) {
  expect_steps_of_one_rank<AdamW, optim::AdamW>(optim::AdamWOptions(0.1));
  expect_steps_of_one_rank<AdamW, optim::AdamW>(
      optim::AdamWOptions(0.1).amsgrad(true).weight_decay(0.3).betas({0.8, 0.9}).eps(1e-6));
}

TEST(AdamW, PaysWhatGradientsOweAndMovesThoseThatAreElsewhere) {
  on_a_grid([&](World&, const DeviceMesh& mesh) {
    PlacedParameters parameters(mesh);
    AdamW ours(parameters.ours, optim::AdamWOptions(0.1));
    optim::AdamW plain(parameters.plain, optim::AdamWOptions(0.1));
    parameters.set_gradients(1);
    at::Tensor& owing = parameters.ours[0].mutable_grad();
    owing = redistribute(owing, {Partial(), Shard(0)});
    at::Tensor& elsewhere = parameters.ours[1].mutable_grad();
    elsewhere = redistribute(elsewhere, {Replicate(), Shard(1)});
    ours.step();
    plain.step();
    parameters.expect_equal();
  });
}

TEST(AdamW, TakesTilesOfAnyLayoutAndDtype) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    std::vector<at::Tensor> ours, plain;
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor value = numbers({6, 5}).to(type).t();
      const at::Tensor gradient = numbers({5, 6}, 2).to(type);
      plain.push_back(value.clone().requires_grad_());
      ours.push_back(distribute_tensor(value, mesh, {Shard(0)}).requires_grad_());
      EXPECT_FALSE(to_local(ours.back()).is_contiguous());
      plain.back().mutable_grad() = gradient;
      ours.back().mutable_grad() = distribute_tensor(gradient, mesh, {Shard(0)});
    }
    AdamW(ours, optim::AdamWOptions(0.1)).step();
    optim::AdamW(plain, optim::AdamWOptions(0.1)).step();
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(difference(full_tensor(ours[k].detach()), plain[k].detach(), k == 0 ? 1e-6 : 1e-9),
                "");
    }
  });
}

TEST(AdamW, StateThatWasPlainMovesWithTheParameters) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    at::Tensor ours = leaf({5, 4}), plain = leaf({5, 4});
    AdamW optimizer({ours}, optim::AdamWOptions(0.1));
    optim::AdamW plain_optimizer({plain}, optim::AdamWOptions(0.1));
    const auto step = [&](std::uint64_t seed) {
      plain.mutable_grad() = numbers({5, 4}, seed);
      ours.mutable_grad() = is_dtensor(ours)
                                ? distribute_tensor(numbers({5, 4}, seed), mesh, {Shard(0)})
                                : numbers({5, 4}, seed);
      optimizer.step();
      plain_optimizer.step();
    };
    step(2);
    optimizer.zero_grad();
    ours.set_data(distribute_tensor(ours.detach(), mesh, {Shard(0)}));
    distribute_optimizer_state(optimizer);
    step(3);
    EXPECT_EQ(difference(full_tensor(ours.detach()), plain.detach()), "");
  });
}

TEST(AdamW, RefusesAPlainGradientOfADTensorBeforeAnythingIsWritten) {
  on_a_grid([&](World&, const DeviceMesh& mesh) {
    PlacedParameters parameters(mesh);
    AdamW optimizer(parameters.ours, optim::AdamWOptions(0.1));
    parameters.set_gradients(1);
    parameters.ours[7].mutable_grad() = numbers({3}, 1);
    const std::string text = error_of([&] { optimizer.step(); });
    EXPECT_TRUE(contains(text, "a gradient is plain where its parameter is a DTensor")) << text;
    parameters.expect_equal();
  });
}

}  // namespace optimizers_test
}  // namespace tegula
