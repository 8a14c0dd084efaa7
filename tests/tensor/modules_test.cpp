// Modules, optimizers and serialization of libtorch on DTensors.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <sstream>

#include "tegula/comm/comm_log.h"
#include "tegula/random/random.h"
#include "tegula/tensor/factories.h"
#include "tegula/tensor/module.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace modules_test {

// Even and uneven cuts by name: weights along dim 0, biases along dim 0, every second one whole.
Placements by_turns(const DeviceMesh& mesh, const std::string& name, const at::Tensor& tensor) {
  Placements placements(mesh.ndim(), Replicate());
  if (tensor.dim() == 0) return placements;
  const std::size_t sum = name.size() + static_cast<std::size_t>(tensor.dim());
  placements[sum % mesh.ndim()] = Shard(static_cast<std::int64_t>(sum) % tensor.dim());
  return placements;
}

// Parameters and buffers with values that do not depend on a generator.
void set_values(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  std::uint64_t seed = 1;
  for (at::Tensor& parameter : module.parameters()) {
    parameter.copy_(numbers(parameter.sizes(), seed++) * 0.5);
  }
}

void distribute_by_turns(torch::nn::Module& module, const DeviceMesh& mesh) {
  distribute_module(module, mesh, [&](const std::string& name, const at::Tensor& tensor) {
    return by_turns(mesh, name, tensor);
  });
}

// Builds the model twice, distributes one, and compares results, parameters, buffers and gradients
// after each of three steps of an optimizer.
template <class Model>
void expect_trains_as_plain(const std::function<Model()>& build,
                            const std::function<at::Tensor(Model&, const at::Tensor&)>& loss_of,
                            const at::Tensor& input) {
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      Model plain = build();
      Model model = build();
      for (Model* one : {&plain, &model}) {
        (*one)->to(at::kDouble);
        set_values(**one);
      }
      distribute_by_turns(*model, mesh);
      torch::optim::AdamW plain_optimizer(plain->parameters(), 0.05);
      torch::optim::AdamW optimizer(model->parameters(), 0.05);
      const at::Tensor x = distribute_tensor(
          input, mesh,
          Placements(mesh.ndim(),
                     input.is_floating_point() ? Placement(Shard(0)) : Placement(Replicate())));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        plain_optimizer.zero_grad();
        const at::Tensor want = loss_of(plain, input);
        const at::Tensor got = loss_of(model, x);
        ASSERT_EQ(difference(full_tensor(got.detach()), want.detach(), 1e-8), "") << step;
        want.backward();
        got.backward();
        optimizer.step();
        plain_optimizer.step();
        const auto parameters = plain->named_parameters();
        for (const auto& item : model->named_parameters()) {
          const at::Tensor& other = parameters[item.key()];
          ASSERT_TRUE(is_dtensor(item.value())) << item.key();
          ASSERT_EQ(item.value().grad().defined(), other.grad().defined()) << item.key();
          if (other.grad().defined()) {
            ASSERT_TRUE(is_dtensor(item.value().grad())) << item.key();
            EXPECT_EQ(to_string(placements_of(item.value().grad())),
                      to_string(placements_of(item.value())))
                << item.key();
            EXPECT_EQ(difference(full_tensor(item.value().grad()), other.grad(), 1e-8), "")
                << item.key();
          }
          EXPECT_EQ(difference(full_tensor(item.value().detach()), other.detach(), 1e-8), "")
              << item.key();
        }
        const auto buffers = plain->named_buffers();
        for (const auto& item : model->named_buffers()) {
          EXPECT_EQ(difference(full_tensor(item.value()), buffers[item.key()], 1e-8), "")
              << item.key();
        }
      }
    });
  }
}

TEST(DistributeModule, AMultiLayerPerceptronTrainsAsPlain) {
  expect_trains_as_plain<torch::nn::Sequential>(
      [] {
        return torch::nn::Sequential(torch::nn::Linear(5, 7),
                                     torch::nn::LayerNorm(torch::nn::LayerNormOptions({7})),
                                     torch::nn::GELU(), torch::nn::Linear(7, 3));
      },
      [](torch::nn::Sequential& model, const at::Tensor& x) {
        return model->forward(x).square().mean();
      },
      numbers({6, 5}, 9));
}

TEST(DistributeModule, AConvolutionalNetworkWithBatchNormTrainsAsPlain) {
  expect_trains_as_plain<torch::nn::Sequential>(
      [] {
        return torch::nn::Sequential(
            torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 5, 3).padding(1)),
            torch::nn::BatchNorm2d(5), torch::nn::ReLU(),
            torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2)),
            torch::nn::GroupNorm(torch::nn::GroupNormOptions(1, 5)), torch::nn::Flatten(),
            torch::nn::Linear(20, 3));
      },
      [](torch::nn::Sequential& model, const at::Tensor& x) {
        return model->forward(x).square().mean();
      },
      numbers({3, 2, 4, 5}, 9));
}

TEST(DistributeModule, AnEmbeddingTrainsAsPlain) {
  expect_trains_as_plain<torch::nn::Embedding>(
      [] { return torch::nn::Embedding(11, 3); },
      [](torch::nn::Embedding& model, const at::Tensor& x) {
        return model->forward(x).sin().mean();
      },
      at::tensor({3, 10, 0, 3, 7}, at::kLong));
}

TEST(DistributeModule, AnLSTMTrainsAsPlain) {
  expect_trains_as_plain<torch::nn::LSTM>(
      [] {
        return torch::nn::LSTM(torch::nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true));
      },
      [](torch::nn::LSTM& model, const at::Tensor& x) {
        return std::get<0>(model->forward(x)).square().mean();
      },
      numbers({5, 3, 3}, 9));
}

TEST(DistributeModule, AGRUTrainsAsPlain) {
  expect_trains_as_plain<torch::nn::GRU>([] { return torch::nn::GRU(torch::nn::GRUOptions(3, 4)); },
                                         [](torch::nn::GRU& model, const at::Tensor& x) {
                                           return std::get<0>(model->forward(x)).square().mean();
                                         },
                                         numbers({5, 3, 3}, 9));
}

TEST(DistributeModule, AttentionTrainsAsPlain) {
  expect_trains_as_plain<torch::nn::MultiheadAttention>(
      [] { return torch::nn::MultiheadAttention(6, 2); },
      [](torch::nn::MultiheadAttention& model, const at::Tensor& x) {
        return std::get<0>(model->forward(x, x, x)).square().mean();
      },
      numbers({5, 3, 6}, 9));
}

TEST(DistributeModule, ATransformerLayerTrainsAsPlain) {
  expect_trains_as_plain<torch::nn::TransformerEncoderLayer>(
      [] {
        return torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(10).dropout(0));
      },
      [](torch::nn::TransformerEncoderLayer& model, const at::Tensor& x) {
        return model->forward(x).square().mean();
      },
      numbers({5, 3, 6}, 9));
}

TEST(DistributeModule, HandlesTakenBeforeSeeTheChange) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear model(5, 4);
    const at::Tensor weight = model->weight;
    distribute_by_turns(*model, mesh);
    EXPECT_TRUE(is_dtensor(weight));
    EXPECT_TRUE(weight.is_same(model->weight));
    EXPECT_TRUE(weight.is_leaf());
    EXPECT_TRUE(weight.requires_grad());
  });
}

TEST(DistributeModule, GradientsThatArePresentComeAlong) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear model(5, 4);
    model->to(at::kDouble);
    set_values(*model);
    const at::Tensor x = numbers({2, 5}, 8);
    model->forward(x).sum().backward();
    const at::Tensor want = model->weight.grad().clone();
    distribute_module(*model, mesh,
                      [](const std::string&, const at::Tensor&) { return Placements{Shard(0)}; });
    ASSERT_TRUE(is_dtensor(model->weight.grad()));
    EXPECT_EQ(to_string(placements_of(model->weight.grad())), "[S(0)]");
    EXPECT_EQ(difference(full_tensor(model->weight.grad()), want), "");
    model->forward(distribute_tensor(x, mesh, {Shard(0)})).sum().backward();
    EXPECT_EQ(difference(full_tensor(model->weight.grad()), want * 2), "");
    EXPECT_EQ(to_string(placements_of(model->weight.grad())), "[S(0)]");
  });
}

TEST(DistributeModule, TiedParametersStayTied) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Embedding table(7, 3);
    torch::nn::Linear head(torch::nn::LinearOptions(3, 7).bias(false));
    head->weight = head->register_parameter("tied", table->weight);
    torch::nn::Sequential model(table, head);
    int asked = 0;
    distribute_module(*model, mesh, [&](const std::string&, const at::Tensor& tensor) {
      if (tensor.is_same(table->weight)) ++asked;
      return Placements{Shard(0)};
    });
    EXPECT_TRUE(head->weight.is_same(table->weight));
    EXPECT_TRUE(is_dtensor(head->weight));
    const at::Tensor index =
        distribute_tensor(at::tensor({6, 1, 1}, at::kLong), mesh, {Replicate()});
    head->forward(table->forward(index)).square().sum().backward();
    const at::Tensor plain = full_tensor(table->weight.detach()).requires_grad_();
    at::linear(at::embedding(plain, full_tensor(index)), plain).square().sum().backward();
    EXPECT_EQ(difference(full_tensor(table->weight.grad()), plain.grad(), 1e-4), "");
  });
}

TEST(DistributeModule, WhatIsADTensorStays) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear model(4, 4);
    const auto place = [](const std::string& name, const at::Tensor&) {
      return name == "weight" ? Placements{Shard(1)} : Placements{Replicate()};
    };
    distribute_module(*model, mesh, place);
    distribute_module(*model, mesh);
    EXPECT_EQ(to_string(placements_of(model->weight)), "[S(1)]");
  });
}

TEST(DistributeModule, TheDataOfTheSourceCounts) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear model(4, 4);
    {
      const at::NoGradGuard no_grad;
      model->weight.fill_(world.rank());
    }
    distribute_module(*model, mesh,
                      [](const std::string&, const at::Tensor&) { return Placements{Shard(0)}; },
                      {2, {}});
    EXPECT_EQ(difference(full_tensor(model->weight.detach()), at::full({4, 4}, 2.0f)), "");
  });
}

// A layer whose parameters have shapes but no data.
struct MetaLayer : torch::nn::Module {
  MetaLayer() {
    weight = register_parameter("weight", at::empty({4, 5}, at::TensorOptions(at::kMeta)));
    scale = register_buffer("scale", at::empty({4}, at::TensorOptions(at::kMeta)));
  }
  at::Tensor weight;
  at::Tensor scale;
};

TEST(DistributeModule, AMetaParameterCanBeGivenDistributedData) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    MetaLayer model;
    model.weight.set_data(zeros({4, 5}, mesh, {Shard(0)}));
    EXPECT_TRUE(is_dtensor(model.weight));
    EXPECT_FALSE(model.weight.is_meta());
    EXPECT_TRUE(model.weight.is_leaf());
    const at::Tensor y = at::linear(ones({3, 5}, mesh, {Shard(0)}), model.weight);
    EXPECT_EQ(difference(full_tensor(y.detach()), at::zeros({3, 4})), "");
    y.sum().backward();
    EXPECT_EQ(difference(full_tensor(model.weight.grad()), at::full({4, 5}, 3.0f)), "");
    EXPECT_EQ(to_string(placements_of(model.weight.grad())), "[S(0)]");
  });
}

TEST(DistributeModule, AMetaModuleGetsTilesWithoutValues) {
  run_impatient(2, [](World& world) {
    MetaLayer model;
    distribute_by_turns(model, usual_mesh(world));
    for (const at::Tensor& tensor : {model.weight, model.scale}) {
      EXPECT_TRUE(is_dtensor(tensor));
      EXPECT_FALSE(tensor.is_meta());
      EXPECT_FALSE(to_local(tensor.detach()).is_meta());
      tensor.detach().fill_(2);
      EXPECT_EQ(difference(full_tensor(tensor.detach()), at::full(tensor.sizes(), 2.0f)), "");
    }
    EXPECT_TRUE(model.weight.requires_grad());
    EXPECT_TRUE(model.weight.is_leaf());
  });
}

TEST(DistributeModule, ATensorCanBecomePlainAgain) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear model(5, 4);
    distribute_by_turns(*model, mesh);
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : model->parameters()) {
        parameter.set_data(full_tensor(parameter));
      }
    }
    EXPECT_FALSE(is_dtensor(model->weight));
    EXPECT_EQ(model->forward(at::ones({2, 5})).sizes(), at::IntArrayRef({2, 4}));
  });
}

// --- optimizers

template <class Optimizer, class Options>
void expect_state_moves(const Options& options) {
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear plain(5, 4);
    torch::nn::Linear model(5, 4);
    for (torch::nn::Linear* one : {&plain, &model}) {
      (*one)->to(at::kDouble);
      set_values(**one);
    }
    Optimizer plain_optimizer(plain->parameters(), options);
    Optimizer optimizer(model->parameters(), options);
    const at::Tensor x = numbers({3, 5}, 8);
    const auto step = [&](torch::nn::Linear& one, Optimizer& by, const at::Tensor& input) {
      by.zero_grad();
      one->forward(input).square().mean().backward();
      by.step();
    };
    step(plain, plain_optimizer, x);
    step(model, optimizer, x);
    distribute_by_turns(*model, mesh);
    distribute_optimizer_state(optimizer);
    const at::Tensor placed = distribute_tensor(x, mesh, {Shard(0)});
    for (int k = 0; k < 3; ++k) {
      step(plain, plain_optimizer, x);
      step(model, optimizer, placed);
    }
    EXPECT_EQ(difference(full_tensor(model->weight.detach()), plain->weight.detach()), "");
    EXPECT_EQ(difference(full_tensor(model->bias.detach()), plain->bias.detach()), "");
  });
}

TEST(OptimizerState, OfSGDMoves) {
  expect_state_moves<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
}
TEST(OptimizerState, OfAdamMoves) {
  expect_state_moves<torch::optim::Adam>(torch::optim::AdamOptions(0.1).amsgrad(true));
}
TEST(OptimizerState, OfAdamWMoves) {
  expect_state_moves<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1));
}
TEST(OptimizerState, OfAdagradMoves) {
  expect_state_moves<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
}
TEST(OptimizerState, OfRMSpropMoves) {
  expect_state_moves<torch::optim::RMSprop>(
      torch::optim::RMSpropOptions(0.1).momentum(0.5).centered(true));
}

TEST(OptimizerState, OfLBFGSIsRefused) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear model(3, 2);
    torch::optim::LBFGS optimizer(model->parameters(), 0.1);
    optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor loss = model->forward(at::ones({2, 3})).square().mean();
      loss.backward();
      return loss;
    });
    distribute_by_turns(*model, mesh);
    const std::string text = error_of([&] { distribute_optimizer_state(optimizer); });
    EXPECT_TRUE(contains(text, "no known form")) << text;
  });
}

TEST(OptimizerState, GradientsOfSeveralPlacementsAreClippedTogether) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear plain(5, 4);
    torch::nn::Linear model(5, 4);
    for (torch::nn::Linear* one : {&plain, &model}) {
      (*one)->to(at::kDouble);
      set_values(**one);
    }
    distribute_by_turns(*model, mesh);
    const at::Tensor x = numbers({3, 5}, 8);
    plain->forward(x).square().sum().backward();
    model->forward(distribute_tensor(x, mesh, {Shard(0)})).square().sum().backward();
    const double want = torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.5);
    const double got = torch::nn::utils::clip_grad_norm_(model->parameters(), 0.5);
    EXPECT_NEAR(got, want, 1e-9);
    EXPECT_EQ(difference(full_tensor(model->weight.grad()), plain->weight.grad()), "");
  });
}

// --- serialization

TEST(Saving, ADTensorOrAModuleOfThemThrowsAndNamesWhatToUse) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4}, mesh, {Shard(0)});
    std::ostringstream out;
    std::string text = error_of([&] { torch::save(x, out); });
    EXPECT_TRUE(contains(text, "tegula::full_tensor")) << text;
    torch::nn::Linear model(5, 4);
    distribute_by_turns(*model, mesh);
    text = error_of([&] { torch::save(model, out); });
    EXPECT_TRUE(contains(text, "tegula::full_tensor")) << text;
  });
}

TEST(Saving, TheWholeOfADTensorSurvivesTheRoundTrip) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({5}), usual_mesh(world), {Shard(0)});
    std::stringstream stream;
    torch::save(full_tensor(x), stream);
    at::Tensor loaded;
    torch::load(loaded, stream);
    EXPECT_EQ(difference(loaded, numbers({5})), "");
  });
}

TEST(Saving, ADistributedModuleLoadsPlainValues) {
  torch::nn::Linear plain(5, 4);
  std::stringstream saved;
  torch::save(plain, saved);
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear model(5, 4);
    distribute_by_turns(*model, mesh);
    const std::string placements = to_string(placements_of(model->weight));
    for (const bool is_same_on_all_ranks : {false, true}) {
      std::stringstream stream(saved.str());
      std::optional<ImplicitReplication> guard;
      if (is_same_on_all_ranks) guard.emplace();
      const CommLog log(world);
      torch::load(model, stream);
      EXPECT_EQ(log.empty(), is_same_on_all_ranks) << log.to_string();
      EXPECT_EQ(to_string(placements_of(model->weight)), placements);
      EXPECT_TRUE(at::equal(full_tensor(model->weight.detach()), plain->weight.detach()));
      EXPECT_TRUE(at::equal(full_tensor(model->bias.detach()), plain->bias.detach()));
      EXPECT_TRUE(model->weight.requires_grad());
      torch::NoGradGuard no_grad;
      model->weight.zero_();
    }
  });
}

// --- modules that are built in pieces

// What the module is when it is built on one rank, and on several.
template <class Model>
void expect_built_alike(const std::function<Model()>& build, bool uneven = true) {
  std::vector<at::Tensor> want;
  const auto built = [&](World& world) {
    manual_seed(world, 3);
    const DeviceMesh mesh = world.size() == 1 ? world.mesh({{"a", 1}}) : usual_mesh(world);
    Model model = nullptr;
    {
      const BuildDistributed guard(mesh, [&](at::IntArrayRef shape) {
        Placements placements(mesh.ndim(), Replicate());
        placements[0] = Shard(uneven ? static_cast<std::int64_t>(shape.size()) - 1 : 0);
        return placements;
      });
      model = build();
    }
    std::vector<at::Tensor> values;
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(is_dtensor(item.value())) << item.key();
      EXPECT_TRUE(item.value().is_leaf()) << item.key();
      EXPECT_TRUE(item.value().requires_grad()) << item.key();
      values.push_back(is_dtensor(item.value()) ? full_tensor(item.value().detach())
                                                : item.value().detach());
    }
    return values;
  };
  run_impatient(1, [&](World& world) { want = built(world); });
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const std::vector<at::Tensor> got = built(world);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(difference(got[i], want[i], 0), "") << i;
      }
    });
  }
}

TEST(BuildDistributed, ALinearLayerIsTheSameOnAllMeshes) {
  expect_built_alike<torch::nn::Linear>([] { return torch::nn::Linear(5, 7); });
  expect_built_alike<torch::nn::Linear>([] { return torch::nn::Linear(5, 7); }, false);
}

TEST(BuildDistributed, OtherLayersAreTheSameOnAllMeshes) {
  expect_built_alike<torch::nn::LayerNorm>(
      [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})); });
  expect_built_alike<torch::nn::Embedding>([] { return torch::nn::Embedding(11, 5); });
  expect_built_alike<torch::nn::Embedding>(
      [] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(11, 5).padding_idx(2)); },
      false);
  expect_built_alike<torch::nn::MultiheadAttention>(
      [] { return torch::nn::MultiheadAttention(6, 2); });
  expect_built_alike<torch::nn::BatchNorm1d>([] { return torch::nn::BatchNorm1d(5); });
  expect_built_alike<torch::nn::Conv2d>([] { return torch::nn::Conv2d(3, 5, 3); });
  expect_built_alike<torch::nn::LSTM>([] { return torch::nn::LSTM(3, 5); });
}

TEST(BuildDistributed, ABuiltModelTrains) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Sequential model = nullptr;
    {
      const BuildDistributed guard(
          mesh, [](at::IntArrayRef) { return Placements{Shard(0), Replicate()}; });
      model = torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::BatchNorm1d(7),
                                    torch::nn::ReLU(), torch::nn::Linear(7, 3));
    }
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const at::Tensor x = randn({6, 5}, mesh, {Replicate(), Shard(0)});
    double before = 0;
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = model->forward(x).square().mean();
      if (step == 0) before = loss.item<double>();
      loss.backward();
      optimizer.step();
    }
    EXPECT_LT(model->forward(x).square().mean().item<double>(), before / 2);
  });
}

TEST(BuildDistributed, TensorsOfNumbersAndWithoutDimsStayPlain) {
  run_impatient(2, [](World& world) {
    const BuildDistributed guard(usual_mesh(world),
                                 [](at::IntArrayRef) { return Placements{Shard(0)}; });
    EXPECT_TRUE(is_dtensor(torch::randn({4})));
    EXPECT_TRUE(is_dtensor(torch::empty({4})));
    EXPECT_TRUE(is_dtensor(torch::full({4}, 2.0)));
    EXPECT_TRUE(is_dtensor(torch::ones({4}, at::kDouble)));
    EXPECT_FALSE(is_dtensor(torch::zeros({4}, at::kLong)));
    EXPECT_FALSE(is_dtensor(torch::zeros({})));
    EXPECT_FALSE(is_dtensor(torch::tensor({1, 2})));
    EXPECT_EQ(torch::zeros({4}, at::kLong).sum().item<std::int64_t>(), 0);
  });
}

TEST(BuildDistributed, AnInnerGuardCountsWhileItStands) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const BuildDistributed outer(mesh, [](at::IntArrayRef) { return Placements{Shard(0)}; });
    {
      const BuildDistributed inner(mesh, [](at::IntArrayRef) { return Placements{Replicate()}; });
      EXPECT_EQ(to_string(placements_of(torch::zeros({4}))), "[R]");
    }
    EXPECT_EQ(to_string(placements_of(torch::zeros({4}))), "[S(0)]");
  });
}

}  // namespace modules_test
}  // namespace tegula
