// Modules placed by patterns of names, and moved.
#include "tegula/tensor/module.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include "tegula/comm/comm_log.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace module_test {

// Two layers, a table whose weight is the head's, too, and a buffer.
struct Net : torch::nn::Module {
  Net() {
    head = register_parameter("head", table->weight);
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    std::uint64_t seed = 1;
    for (at::Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), seed++));
  }

  at::Tensor loss(const at::Tensor& words) {
    const at::Tensor x = table->forward(words) * scale;
    return at::linear(x + down->forward(up->forward(x).relu()), head).square().mean();
  }

  torch::nn::Linear up{register_module("up", torch::nn::Linear(6, 10))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(10, 6))};
  torch::nn::Embedding table{register_module("table", torch::nn::Embedding(9, 6))};
  at::Tensor scale{register_buffer("scale", at::full({6}, 0.5))};
  at::Tensor head;
};

const at::Tensor kWords = at::tensor({4, 0, 8, 4, 2, 7}, at::kLong);

// Along the mesh's last axis; replicated over the others.
Placements along_last(const DeviceMesh& mesh, const Placement& placement) {
  Placements placements(mesh.ndim(), Replicate());
  placements.back() = placement;
  return placements;
}

PlacementPatterns some_patterns(const DeviceMesh& mesh) {
  return {{"**.weight", along_last(mesh, Shard(0))},
          {"up.*", along_last(mesh, Shard(0))},
          {"down.weight", along_last(mesh, Shard(1))}};
}

PlacementPatterns other_patterns(const DeviceMesh& mesh) {
  return {{"*.weight", along_last(mesh, Shard(-1))}, {"scale", along_last(mesh, Shard(0))}};
}

// What each rank's call throws is the same and contains these.
void expect_refused(int ranks, const std::function<void(World&)>& body,
                    const std::vector<std::string>& parts) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_impatient(ranks, [&](World& world) {
    texts[static_cast<std::size_t>(world.rank())] = error_of([&] { body(world); });
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text, texts[0]);
    for (const std::string& part : parts) EXPECT_TRUE(contains(text, part)) << text;
  }
}

// On 1 rank, on 2 and on 2x2.
void on_usual_ranks(const std::function<void(const World& world, const DeviceMesh& mesh)>& body) {
  for (const int ranks : {1, 2, 4}) {
    run_impatient(ranks, [&](World& world) {
      body(world, world.size() == 1 ? world.mesh({{"a", 1}}) : usual_mesh(world));
    });
  }
}

std::vector<std::string> specs_of(const torch::nn::Module& module) {
  std::vector<std::string> specs;
  for (const auto& item : module.named_parameters()) {
    specs.push_back(item.key() + " " + to_string(spec_of(item.value())));
    const at::Tensor& grad = item.value().grad();
    if (grad.defined()) specs.push_back(item.key() + ".grad " + to_string(spec_of(grad)));
  }
  for (const auto& item : module.named_buffers()) {
    specs.push_back(item.key() + " " + to_string(spec_of(item.value())));
  }
  return specs;
}

void expect_same_values(const torch::nn::Module& module, const torch::nn::Module& plain) {
  const auto wanted = plain.named_parameters();
  for (const auto& item : module.named_parameters()) {
    EXPECT_EQ(difference(full_tensor(item.value().detach()), wanted[item.key()].detach()), "")
        << item.key();
    const at::Tensor& grad = wanted[item.key()].grad();
    ASSERT_EQ(item.value().grad().defined(), grad.defined()) << item.key();
    if (grad.defined()) {
      EXPECT_EQ(difference(full_tensor(item.value().grad()), grad), "") << item.key();
    }
  }
}

// --- distribute_module by patterns

TEST(ModulePatterns, PlaceWhatTheyMatchAndReplicateTheRest) {
  on_usual_ranks([](const World&, const DeviceMesh& mesh) {
    Net net;
    distribute_module(net, mesh, some_patterns(mesh));
    const auto expect_placed = [&](const at::Tensor& tensor, const Placement& placement) {
      EXPECT_EQ(to_string(placements_of(tensor)), to_string(along_last(mesh, placement)));
    };
    expect_placed(net.up->weight, Shard(0));
    expect_placed(net.up->bias, Shard(0));
    expect_placed(net.down->weight, Shard(1));
    expect_placed(net.down->bias, Replicate());
    expect_placed(net.table->weight, Shard(0));
    expect_placed(net.scale, Replicate());
    EXPECT_TRUE(net.head.is_same(net.table->weight));
    expect_same_values(net, Net());
  });
}

TEST(ModulePatterns, ATiedParameterIsPlacedByAnyOfItsNames) {
  on_usual_ranks([](const World&, const DeviceMesh& mesh) {
    Net net;
    distribute_module(net, mesh, {{"head", along_last(mesh, Shard(1))}});
    EXPECT_EQ(to_string(placements_of(net.table->weight)), to_string(along_last(mesh, Shard(1))));
  });
}

TEST(ModulePatterns, AModuleTrainsAsThePlainOne) {
  on_usual_ranks([](const World&, const DeviceMesh& mesh) {
    Net plain, net;
    distribute_module(net, mesh, some_patterns(mesh), kSameOnAllRanks);
    torch::optim::AdamW plain_optimizer(plain.parameters(), 0.05);
    torch::optim::AdamW optimizer(net.parameters(), 0.05);
    const at::Tensor words = shard_batch(kWords, mesh, mesh.axes()[0].name);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor wanted = plain.loss(kWords), loss = net.loss(words);
      EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-9);
      plain_optimizer.zero_grad();
      optimizer.zero_grad();
      wanted.backward();
      loss.backward();
      plain_optimizer.step();
      optimizer.step();
    }
    expect_same_values(net, plain);
  });
}

TEST(ModulePatterns, OneThatMatchesNothingIsRefusedOnAllRanksAndChangesNothing) {
  expect_refused(
      2,
      [](World& world) {
        const DeviceMesh mesh = usual_mesh(world);
        Net net;
        const CommLog log(world);
        const std::string text = error_of(
            [&] { distribute_module(net, mesh, {{"up.*", {Shard(0)}}, {"dwon.*", {Shard(0)}}}); });
        EXPECT_FALSE(is_dtensor(net.up->weight));
        EXPECT_TRUE(log.empty());
        throw std::runtime_error(text);
      },
      {"a pattern matches no parameter or buffer", "\"dwon.*\"", "nearest down.weight, down.bias"});
}

TEST(ModulePatterns, PlacementsThatDoNotFitAreRefusedWithTheName) {
  const auto refused = [](const Placements& placements, const std::vector<std::string>& parts) {
    expect_refused(
        2,
        [&](World& world) {
          Net net;
          const std::string text = error_of(
              [&] { distribute_module(net, usual_mesh(world), {{"up.bias", placements}}); });
          EXPECT_FALSE(is_dtensor(net.up->weight));
          throw std::runtime_error(text);
        },
        parts);
  };
  refused({Shard(1)}, {"dim 1", "up.bias"});
  refused({Shard(0), Shard(0)}, {"up.bias"});
}

// --- what is distributed already

TEST(DistributeModule, WhatIsPlacedAsAskedStays) {
  on_usual_ranks([](const World& world, const DeviceMesh& mesh) {
    Net net;
    distribute_module(net, mesh, some_patterns(mesh));
    const std::vector<std::string> before = specs_of(net);
    const CommLog log(world);
    distribute_module(net, mesh, some_patterns(mesh));
    distribute_module(net, mesh, {{"up.weight", along_last(mesh, Shard(0))}});
    distribute_module(net, mesh);
    EXPECT_EQ(specs_of(net), before);
    EXPECT_TRUE(log.empty());
  });
}

TEST(DistributeModule, WhatIsPlacedOtherwiseThanAskedIsRefused) {
  expect_refused(
      2,
      [](World& world) {
        const DeviceMesh mesh = usual_mesh(world);
        Net net;
        distribute_module(net, mesh, some_patterns(mesh));
        const std::vector<std::string> before = specs_of(net);
        const std::string text =
            error_of([&] { distribute_module(net, mesh, {{"up.weight", {Shard(1)}}}); });
        EXPECT_EQ(error_of([&] {
                    distribute_module(
                        net, mesh, [](const std::string& name, const at::Tensor& tensor) {
                          return name == "up.weight" ? Placements{Shard(1)} : placements_of(tensor);
                        });
                  }),
                  text);
        EXPECT_EQ(specs_of(net), before);
        throw std::runtime_error(text);
      },
      {"distributed already", "\"up.weight\"", "is      f64[10, 6] on (a=2) as [S(0)]",
       "asked   f64[10, 6] on (a=2) as [S(1)]", "redistribute_module"});
}

// --- redistribute_module

TEST(RedistributeModule, LeadsToWhereDistributeModuleDoes) {
  on_usual_ranks([](const World&, const DeviceMesh& mesh) {
    Net plain, net, wanted;
    for (Net* one : {&plain, &net, &wanted}) one->loss(kWords).backward();
    distribute_module(wanted, mesh, other_patterns(mesh));
    distribute_module(net, mesh, some_patterns(mesh));
    redistribute_module(net, mesh, other_patterns(mesh));
    EXPECT_EQ(specs_of(net), specs_of(wanted));
    expect_same_values(net, plain);
    EXPECT_TRUE(net.up->weight.is_leaf());
    EXPECT_TRUE(net.up->weight.requires_grad());
    EXPECT_TRUE(net.head.is_same(net.table->weight));
    redistribute_module(net, mesh);
    EXPECT_EQ(to_string(placements_of(net.up->weight)), to_string(along_last(mesh, Replicate())));
    expect_same_values(net, plain);
  });
}

TEST(RedistributeModule, TakesAFunctionAsWell) {
  on_usual_ranks([](const World&, const DeviceMesh& mesh) {
    Net net;
    distribute_module(net, mesh, some_patterns(mesh));
    redistribute_module(net, mesh, [&](const std::string& name, const at::Tensor& tensor) {
      return name == "up.weight" ? along_last(mesh, Shard(1)) : placements_of(tensor);
    });
    EXPECT_EQ(to_string(placements_of(net.up->weight)), to_string(along_last(mesh, Shard(1))));
    EXPECT_EQ(to_string(placements_of(net.down->weight)), to_string(along_last(mesh, Shard(1))));
    expect_same_values(net, Net());
  });
}

TEST(RedistributeModule, SendsNothingForWhatIsThere) {
  on_usual_ranks([](const World& world, const DeviceMesh& mesh) {
    Net net;
    distribute_module(net, mesh, some_patterns(mesh));
    const CommLog log(world);
    redistribute_module(net, mesh, some_patterns(mesh));
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(RedistributeModule, AModuleTrainsOnAfterAMoveAsThePlainOne) {
  on_usual_ranks([](const World&, const DeviceMesh& mesh) {
    Net plain, net;
    distribute_module(net, mesh, some_patterns(mesh));
    torch::optim::AdamW plain_optimizer(plain.parameters(), 0.05);
    torch::optim::AdamW optimizer(net.parameters(), 0.05);
    const at::Tensor words = shard_batch(kWords, mesh, mesh.axes()[0].name);
    for (int step = 0; step < 4; ++step) {
      plain_optimizer.zero_grad();
      optimizer.zero_grad();
      plain.loss(kWords).backward();
      net.loss(words).backward();
      if (step == 1) {  // between a backward pass and its step
        redistribute_module(net, mesh, other_patterns(mesh));
        distribute_optimizer_state(optimizer);
      }
      plain_optimizer.step();
      optimizer.step();
    }
    expect_same_values(net, plain);
    const auto& state = static_cast<torch::optim::AdamWParamState&>(
        *optimizer.state().at(net.up->weight.unsafeGetTensorImpl()));
    EXPECT_EQ(to_string(placements_of(state.exp_avg())), to_string(placements_of(net.up->weight)));
  });
}

TEST(RedistributeModule, ReachesAnotherMesh) {
  run_impatient(4, [](World& world) {
    Net plain, net;
    for (Net* one : {&plain, &net}) one->loss(kWords).backward();
    const DeviceMesh mesh = usual_mesh(world), line = world.mesh({{"all", 4}});
    distribute_module(net, mesh, some_patterns(mesh));
    redistribute_module(net, line, {{"up.weight", {Shard(1)}}});
    EXPECT_EQ(to_string(spec_of(net.up->weight)), "f64[10, 6] on (all=4) as [S(1)]");
    EXPECT_EQ(to_string(spec_of(net.up->weight.grad())), "f64[10, 6] on (all=4) as [S(1)]");
    EXPECT_EQ(to_string(spec_of(net.scale)), "f64[6] on (all=4) as [R]");
    expect_same_values(net, plain);
  });
}

TEST(RedistributeModule, APlainModuleIsRefused) {
  expect_refused(2,
                 [](World& world) {
                   Net net;
                   redistribute_module(net, usual_mesh(world), {{"up.*", {Shard(0)}}});
                 },
                 {"needs a module that is distributed", "\"head\"", "distribute_module"});
}

}  // namespace module_test
}  // namespace tegula
