// What plain programs do with tensors and modules besides computing: print, initialise, save, load.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/script.h>
#include <torch/serialize.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/group.h"
#include "tegula/tensor/factories.h"
#include "tegula/tensor/module.h"
#include "tegula/tensor/save.h"
#include "tegula/tensor/show.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace habits_test {

// --- text

TEST(Show, SaysWhatThisRankHolds) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor plain = at::arange(4).view({2, 2});
    const CommLog log(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)}, kSameOnAllRanks);
    const std::string rank = std::to_string(world.rank());
    EXPECT_EQ(show(x), (world.rank() == 0 ? std::string(" 0  1\n") : std::string(" 2  3\n")) +
                           "[ i64[2, 2] on (a=2) as [S(0)], the tile of rank " + rank + " ]");
    EXPECT_EQ(show(distribute_tensor(plain, mesh, {Replicate()}, kSameOnAllRanks)),
              " 0  1\n 2  3\n[ i64[2, 2] on (a=2) as [R] ]");
    EXPECT_EQ(show(x.select(0, 0)), "[ i64[2] on (a=2) as [R], a view without data of its own ]");
    EXPECT_TRUE(contains(show(x.sum()), "as [P(sum)], the tile of rank " + rank + " ]"));
    EXPECT_TRUE(contains(show(zeros({4000}, mesh, {Shard(0)})),
                         "the tile of rank " + rank + ", first and last 3 of each dim ]"));
    EXPECT_EQ(log.size(), 0u) << log.to_string();
    std::ostringstream plainly;
    plainly << plain;
    EXPECT_EQ(show(plain), plainly.str());
  });
}

TEST(Show, SaysThatARankOutsideOfTheMeshHoldsNothing) {
  run_impatient(2, [](World& world) {
    const DeviceMesh one = world.mesh(DeviceMesh({{"x", 1}}, {0}));
    const at::Tensor x = ones({2}, one, {Shard(0)});
    EXPECT_EQ(contains(show(x), "this rank holds nothing"), world.rank() == 1);
    EXPECT_FALSE(contains(show(x), "the tile of")) << "a tile that is the whole";
  });
}

TEST(Show, HasBothPartsOfComplexNumbers) {
  run_impatient(2, [](World& world) {
    const at::Tensor x =
        full({2}, c10::complex<double>(3, 4), usual_mesh(world), {Replicate()}, at::kComplexDouble);
    for (const std::string& text : {show(x.conj()), to_string(x.conj())}) {
      EXPECT_TRUE(contains(text, " 3 -4\n")) << text;
      EXPECT_TRUE(contains(text, "real and imaginary parts in the last dim")) << text;
    }
  });
}

TEST(Show, IsNamedWhereATensorIsStreamed) {
  run_impatient(2, [](World& world) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
      const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)}, type);
      std::ostringstream out;
      const std::string text = error_of([&] { out << x; });
      EXPECT_TRUE(contains(text, "tegula: a distributed tensor has no storage of its own")) << text;
      EXPECT_TRUE(contains(text, "stream tegula::show(x)")) << text;
      EXPECT_FALSE(contains(text, "torch.compile")) << text;
    }
  });
}

TEST(Show, AStorageIsRefusedByOurOwnError) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)});
    try {
      (void)x.storage();
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_TRUE(contains(error.what(), "no storage of its own")) << error.what();
      EXPECT_TRUE(contains(error.hint(), "tegula::to_local(x)")) << error.what();
    }
  });
}

TEST(Groups, RefuseADTensorWithASentence) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4}, mesh, {Shard(0)});
    const Group group = world.group(mesh, 0);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { group.all_reduce_(x, ReduceOp::Sum); }, [&] { group.all_gather(x, 0); }}) {
      const std::string text = error_of(call);
      EXPECT_TRUE(contains(text, "a collective needs a plain tensor, not a DTensor")) << text;
      EXPECT_TRUE(contains(text, "to_local(x)")) << text;
    }
  });
}

// --- initialisers

TEST(Initialisers, FillDTensors) {
  namespace init = torch::nn::init;
  using Init = std::function<at::Tensor(at::Tensor)>;
  const std::vector<std::pair<std::string, Init>> all = {
      {"uniform_", [](const at::Tensor& x) { return init::uniform_(x, 1, 2); }},
      {"normal_", [](const at::Tensor& x) { return init::normal_(x, 5); }},
      {"constant_", [](const at::Tensor& x) { return init::constant_(x, 3); }},
      {"ones_", [](const at::Tensor& x) { return init::ones_(x); }},
      {"zeros_", [](const at::Tensor& x) { return init::zeros_(x); }},
      {"eye_", [](const at::Tensor& x) { return init::eye_(x); }},
      {"xavier_uniform_", [](const at::Tensor& x) { return init::xavier_uniform_(x); }},
      {"xavier_normal_", [](const at::Tensor& x) { return init::xavier_normal_(x); }},
      {"kaiming_uniform_", [](const at::Tensor& x) { return init::kaiming_uniform_(x); }},
      {"kaiming_normal_", [](const at::Tensor& x) { return init::kaiming_normal_(x); }},
      {"orthogonal_",
       [](const at::Tensor& x) {
         const BuildDistributed what_it_draws(
             mesh_of(x), [](at::IntArrayRef) -> Placements { return {Replicate()}; });
         return init::orthogonal_(x);
       }},
      {"sparse_",
       [](const at::Tensor& x) {
         at::manual_seed(1);  // the rows, alike on all ranks
         return init::sparse_(x, 0.5);
       }},
      {"dirac_", [](const at::Tensor& x) { return init::dirac_(x); }},
  };
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    for (const auto& [name, fill] : all) {
      for (const Placement& placement : Placements{Replicate(), Shard(0), Shard(1)}) {
        const Shape shape = name == "dirac_" ? Shape{6, 4, 3} : Shape{6, 4};
        const at::Tensor x = full(shape, 9, mesh, {placement}).requires_grad_();
        fill(x);
        const at::Tensor whole = full_tensor(x.detach());
        EXPECT_FALSE((whole == 9).any().item<bool>()) << name;
        if (name == "orthogonal_") {
          EXPECT_TRUE(at::allclose(whole.t().mm(whole), at::eye(4), 1e-4, 1e-5)) << whole;
        }
        if (name == "sparse_") {
          EXPECT_TRUE((whole.eq(0).sum(0) == 3).all().item<bool>()) << whole;
        }
        if (name == "uniform_") {
          EXPECT_TRUE((whole >= 1).logical_and(whole <= 2).all().item<bool>());
        }
      }
    }
  });
}

// --- modules

TEST(Cells, MakeTheirFirstStateThemselves) {
  torch::manual_seed(1);
  const at::Tensor x = numbers({50, 3}).to(at::kFloat);
  torch::nn::LSTMCell lstm(3, 40);
  torch::nn::GRUCell gru(3, 40);
  torch::nn::RNNCell rnn(3, 40);
  const Tensors expected = {std::get<1>(lstm(x)).detach(), gru(x).detach(), rnn(x).detach()};
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const auto copied = [&](const auto& cell) {
      auto copy = std::dynamic_pointer_cast<typename std::decay_t<decltype(cell)>::ContainedType>(
          cell->clone());
      distribute_module(*copy, mesh);
      return copy;
    };
    const at::Tensor batch = shard_batch(x, mesh);
    const Tensors got = {std::get<1>(copied(lstm)->forward(batch)), copied(gru)->forward(batch),
                         copied(rnn)->forward(batch)};
    for (std::size_t k = 0; k < got.size(); ++k) {
      EXPECT_EQ(difference(full_tensor(got[k].detach()), expected[k], 1e-5), "");
    }
  });
}

// A file of this test's own, removed at its end.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& name)
      : path(std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

TEST(Scripts, AModuleOfAnotherProgramIsDistributed) {
  torch::manual_seed(1);
  torch::jit::Module made("net");
  made.register_parameter("weight", at::randn({4, 3}).requires_grad_(), false);
  made.register_buffer("scale", at::full({4}, 2.));
  made.define(
      "def forward(self, x):\n  return torch.relu(torch.matmul(x, self.weight.t())) * "
      "self.scale\n");
  const TemporaryFile file("scripts");
  made.save(file.path.string());
  const at::Tensor x = numbers({5, 3}).to(at::kFloat);
  made.forward({x}).toTensor().sum().backward();
  const at::Tensor expected = made.forward({x}).toTensor().detach();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::jit::Module module = torch::jit::load(file.path.string());
    distribute_module(module, mesh, {{"weight", {Shard(0)}}});
    EXPECT_EQ(placements_of(module.attr("weight").toTensor()), (Placements{Shard(0)}));
    EXPECT_EQ(placements_of(module.attr("scale").toTensor()), (Placements{Replicate()}));
    at::Tensor y;
    for (int run = 0; run < 3; ++run) y = module.forward({shard_batch(x, mesh)}).toTensor();
    EXPECT_EQ(difference(full_tensor(y.detach()), expected, 1e-5), "");
    const std::string text =
        error_of([&] { distribute_module(module, mesh, {{"wait", {Shard(0)}}}); });
    EXPECT_TRUE(contains(text, "matches no parameter or buffer")) << text;
  });
}

// --- files

TEST(Files, WhatIsDistributedIsRefusedBeforeTheFileIsTouched) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const TemporaryFile file("saved" + std::to_string(world.rank()));
    torch::save(at::arange(3), file.path.string());
    torch::nn::Linear net(3, 2);
    distribute_module(*net, mesh);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    net(ones({4, 3}, mesh, {Shard(0)})).sum().backward();
    optimizer.step();
    const std::string path = file.path.string();
    for (const auto& [call, name] : std::vector<std::pair<std::function<void()>, std::string>>{
             {[&] { torch::save(net, path); }, "\"weight\", f32[2, 3]"},
             {[&] { torch::save(net.ptr(), path); }, "\"weight\""},
             {[&] { torch::save(net->weight, path); }, "f32[2, 3] on (a=2) as [R]"},
             {[&] { torch::save(Tensors{at::ones({1}), net->weight}, path); }, "\"1\", f32[2, 3]"},
             {[&] { torch::save(net->parameters(), path); }, "\"0\", f32[2, 3]"},
             {[&] { torch::save(optimizer, path); }, "f32[2, 3]"}}) {
      const std::string text = error_of(call);
      EXPECT_TRUE(contains(text, "torch::save cannot save what is distributed")) << text;
      EXPECT_TRUE(contains(text, "tensor  " + name)) << text;
      at::Tensor kept;
      torch::load(kept, path);
      EXPECT_TRUE(at::equal(kept, at::arange(3)));
    }
  });
}

TEST(Files, WhatIsPlainIsSavedAsEver) {
  const TemporaryFile file("plain");
  torch::nn::Linear net(3, 2);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  torch::save(net, file.path.string());
  torch::nn::Linear other(3, 2);
  torch::load(other, file.path.string());
  EXPECT_TRUE(at::equal(other->weight, net->weight));
  torch::save(optimizer, file.path.string());
  std::ostringstream stream;
  torch::save(net->weight, stream);
  EXPECT_FALSE(stream.str().empty());
  torch::save(Tensors{at::arange(3), at::ones({2})}, file.path.string());
  Tensors list;
  torch::load(list, file.path.string());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(at::equal(list[0], at::arange(3)) && at::equal(list[1], at::ones({2})));
}

TEST(Files, AnOptimizersStateIsLoadedAndDistributed) {
  torch::manual_seed(1);
  torch::nn::Linear plain(3, 4);
  const TemporaryFile module_file("module");
  const TemporaryFile state_file("optimizer");
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGD optimizer(plain->parameters(), sgd);
  const at::Tensor x = numbers({5, 3}).to(at::kFloat);
  const auto step = [](torch::nn::Linear& net, torch::optim::SGD& with, const at::Tensor& batch) {
    with.zero_grad();
    net(batch).square().sum().backward();
    with.step();
  };
  step(plain, optimizer, x);
  torch::save(plain, module_file.path.string());
  torch::save(optimizer, state_file.path.string());
  step(plain, optimizer, x);
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    torch::nn::Linear net(3, 4);
    distribute_module(*net, mesh, {{"weight", {Shard(0)}}});
    torch::optim::SGD mine(net->parameters(), sgd);
    torch::load(net, module_file.path.string());
    torch::load(mine, state_file.path.string());
    distribute_optimizer_state(mine);
    step(net, mine, shard_batch(x, mesh));
    EXPECT_EQ(difference(full_tensor(net->weight.detach()), plain->weight.detach(), 1e-5), "");
    EXPECT_EQ(difference(full_tensor(net->bias.detach()), plain->bias.detach(), 1e-5), "");
  });
}

TEST(Files, TheFirstRanksFileCounts) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor mine = at::full({5}, world.rank(), at::kDouble);
    const at::Tensor x = ones({5}, mesh, {Shard(0)}, at::kDouble);
    x.set_(mine);
    EXPECT_EQ(difference(full_tensor(x), at::zeros({5}, at::kDouble)), "");
    EXPECT_TRUE(contains(error_of([&] { x.set_(at::ones({6}, at::kDouble)); }),
                         "cannot be given a storage"));
    EXPECT_TRUE(contains(error_of([&] { at::ones({5}, at::kDouble).set_(x); }),
                         "cannot be given a storage"));
  });
}

// --- lists of tensors on several meshes

TEST(Lists, MayHoldTensorsOfDifferentSlices) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const Tensors plain = {numbers({5, 2}), numbers({4}, 2), numbers({3}, 3)};
    const Tensors placed = {distribute_tensor(plain[0], mesh["a"], {Shard(0)}),
                            distribute_tensor(plain[1], mesh["b"], {Shard(0)}),
                            distribute_tensor(plain[2], mesh["a"], {Replicate()})};
    for (int round = 0; round < 2; ++round) {
      const Tensors norms = at::_foreach_norm(placed);
      EXPECT_EQ(mesh_of(norms[1]), mesh["b"]);
      const at::Tensor total = at::stack(norms).norm();
      EXPECT_EQ(mesh_of(total), mesh);
      const at::Tensor expected = at::stack(at::_foreach_norm(plain)).norm();
      EXPECT_EQ(difference(full_tensor(total), expected), "");
      {
        const CommLog log(world);
        at::_foreach_mul_(placed, 1 / total);
        EXPECT_EQ(log.size(), 0u) << log.to_string();
      }
      at::_foreach_mul_(plain, 1 / expected);
      at::_foreach_add_(placed, placed);
      at::_foreach_add_(plain, plain);
      for (std::size_t k = 0; k < plain.size(); ++k) {
        EXPECT_EQ(placed[k].sizes(), plain[k].sizes());
        EXPECT_EQ(difference(full_tensor(placed[k]), plain[k]), "") << k;
      }
    }
  });
}

TEST(Lists, GradientsOfDifferentSlicesAreClipped) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const Tensors plain = {leaf({5, 2}), leaf({4}, 2)};
    const Tensors placed = {distribute_tensor(plain[0].detach(), mesh["a"], {Shard(0)}),
                            distribute_tensor(plain[1].detach(), mesh["b"], {Shard(0)})};
    for (const Tensors& parameters : {plain, placed}) {
      for (const at::Tensor& parameter : parameters) {
        parameter.mutable_grad() = parameter.detach() * 2;
      }
    }
    const double norm = torch::nn::utils::clip_grad_norm_(plain, 1);
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(placed, 1), norm, 1e-9);
    for (std::size_t k = 0; k < plain.size(); ++k) {
      EXPECT_EQ(difference(full_tensor(placed[k].grad()), plain[k].grad()), "") << k;
    }
  });
}

}  // namespace habits_test
}  // namespace tegula
