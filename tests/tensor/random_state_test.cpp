// torch's generator controls what ranks that are processes draw together.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <stdexcept>

#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/rank_processes.h"

namespace tegula {
namespace random_state_test {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

// In tiles; whole on every rank, with a generator and by way of torch's own.
at::Tensor drawn(const DeviceMesh& mesh) {
  const Placements cut(mesh.ndim(), Shard(0));
  const at::Tensor x = randn({7, 3}, mesh, cut);
  const at::Tensor kept = at::dropout(ones({7, 3}, mesh, cut), 0.5, true);
  const at::Tensor picked = at::multinomial(rand({7}, mesh, cut), 3).to(at::kFloat);
  const at::Tensor leaky = at::rrelu(x - 1, 0.1, 0.3, true);
  const at::Tensor noise = at::randn_like(x.to(at::kComplexFloat)).abs();
  return at::cat({full_tensor(x).flatten(), full_tensor(kept).flatten(), full_tensor(picked),
                  full_tensor(leaky).flatten(), full_tensor(noise).flatten()});
}

DeviceMesh line(const World& world) { return world.mesh({{"a", world.size()}}); }

// On every rank the same as on rank 0.
bool is_alike(const World& world, const at::Tensor& tensor) {
  const at::Tensor all = world.group().all_gather(tensor.unsqueeze(0), 0);
  return at::equal(all, tensor.unsqueeze(0).expand_as(all));
}

// --- seeds and states

void seeds_and_states(World& world, const std::string&) {
  const DeviceMesh mesh = line(world);
  require(is_alike(world, to_local(rand({100}, mesh, {Replicate()}))),
          "ranks that nobody seeded draw alike");
  at::manual_seed(3);
  const at::Tensor first = drawn(mesh);
  const at::Tensor state = generator().get_state();
  const at::Tensor second = drawn(mesh);
  require(!at::equal(first, second), "draws move on");
  at::manual_seed(3);
  require(at::equal(drawn(mesh), first), "a seed repeats its draws");
  at::manual_seed(4);
  require(!at::equal(drawn(mesh), first), "another seed gives other numbers");
  generator().set_state(state);
  require(at::equal(drawn(mesh), second), "a state that is restored repeats its draws");
}

// --- draws of a rank for itself

void own_draws(World& world, const std::string&) {
  const DeviceMesh mesh = line(world);
  at::manual_seed(3);
  const at::Tensor want = at::cat({drawn(mesh), drawn(mesh)});
  at::manual_seed(3);
  const at::Tensor first = drawn(mesh);
  at::randperm(100 * (world.rank() + 1));
  for (int i = 0; i < world.rank(); ++i) at::randn({1000});
  require(at::equal(at::cat({first, drawn(mesh)}), want),
          "what ranks draw for themselves does not change what they draw together");

  const auto plain = [](const std::function<void()>& meanwhile) {
    at::manual_seed(3);
    const at::Tensor before = at::randn({5});
    meanwhile();
    return at::cat({before, at::randn({5}), at::rand({3})});
  };
  require(at::equal(plain([&] { drawn(mesh); }), plain([] {})),
          "what ranks draw together does not change what they draw for themselves");
}

// --- recomputation

at::Tensor model(const at::Tensor& x, const at::Tensor& w) {
  return at::dropout(at::dropout(x.mm(w), 0.5, true).relu(), 0.2, true);
}

// As a checkpoint does: forward without a graph, then once more with one.
at::Tensor recomputed_gradient(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor before = generator().get_state();
  at::Tensor y;
  {
    const at::NoGradGuard no_graph;
    y = model(x, w);
  }
  const at::Tensor after = generator().get_state();
  generator().set_state(before);
  model(x, w).backward(at::ones_like(y));
  generator().set_state(after);
  return full_tensor(w.grad());
}

void recomputation(World& world, const std::string&) {
  const DeviceMesh mesh = line(world);
  const at::Tensor x = full_tensor(randn({8, 6}, mesh, {Replicate()}));
  const at::Tensor input = distribute_tensor(x, mesh, {Shard(0)});
  const auto weights = [&] {
    return ones({6, 8}, mesh, {Replicate()}, at::TensorOptions().requires_grad(true));
  };
  at::manual_seed(5);
  at::Tensor w = weights();
  model(input, w).backward(ones({8, 8}, mesh, {Shard(0)}));
  const at::Tensor next = full_tensor(rand({4}, mesh, {Shard(0)}));
  at::manual_seed(5);
  require(at::equal(recomputed_gradient(input, weights()), full_tensor(w.grad())),
          "what is recomputed draws the same");
  require(at::equal(full_tensor(rand({4}, mesh, {Shard(0)})), next), "draws go on behind it");
}

// --- ranks that differ

void stages(World& world, const std::string&) {
  const DeviceMesh mesh = world.mesh({{"stage", 2}, {"dp", world.size() / 2}});
  const std::int64_t stage = mesh.coordinate_of(world.rank())->front();
  at::manual_seed(6);
  const at::Tensor first = full_tensor(rand({5}, mesh["dp"], {Shard(0)}));
  const at::Tensor state = generator().get_state();
  at::Tensor last;
  for (std::int64_t i = 0; i < 1 + 2 * stage; ++i) last = rand({5}, mesh["dp"], {Shard(0)});
  const at::Tensor joint = full_tensor(rand({5}, mesh, {Shard(0), Replicate()}));
  require(is_alike(world, joint), "ranks that differ draw together");
  require(!at::equal(joint, first), "a slice has numbers of its own");
  generator().set_state(state);
  at::Tensor again;
  for (std::int64_t i = 0; i < 1 + 2 * stage; ++i) again = rand({5}, mesh["dp"], {Shard(0)});
  require(at::equal(full_tensor(again), full_tensor(last)), "a stage recomputes");
  require(at::equal(full_tensor(rand({5}, mesh, {Shard(0), Replicate()})), joint),
          "they draw together after that");
}

// --- states of other processes

// "save <file>", "load <file>": a state, and what is drawn after it.
void across_processes(World& world, const std::string& argument) {
  const DeviceMesh mesh = line(world);
  const std::string file = argument.substr(5);
  if (argument.starts_with("save")) {
    at::manual_seed(7);
    drawn(mesh);
    const at::Tensor state = generator().get_state();
    const at::Tensor after = drawn(mesh);
    if (world.rank() == 0) torch::save(std::vector<at::Tensor>{state, after}, file);
  } else {
    std::vector<at::Tensor> saved;
    torch::load(saved, file);
    generator().set_state(saved[0]);
    require(at::equal(drawn(mesh), saved[1]), "another process continues");
  }
}

const RankProgram kSeedsAndStates("seeds and states", seeds_and_states);
const RankProgram kOwnDraws("own draws", own_draws);
const RankProgram kRecomputation("recomputation", recomputation);
const RankProgram kStages("stages", stages);
const RankProgram kAcrossProcesses("across processes", across_processes);
constexpr double kLimit = 600;

TEST(RandomState, FollowsTheSeedAndTheStateOfTorchsGenerator) {
  for (int ranks : {2, 3}) EXPECT_NO_THROW(kSeedsAndStates.run(ranks, "", kLimit));
}

TEST(RandomState, IsApartFromWhatRanksDrawForThemselves) {
  EXPECT_NO_THROW(kOwnDraws.run(3, "", kLimit));
}

TEST(RandomState, MakesRecomputedDropoutExact) {
  EXPECT_NO_THROW(kRecomputation.run(2, "", kLimit));
}

TEST(RandomState, BelongsToTheRanksThatDrawTogether) {
  EXPECT_NO_THROW(kStages.run(4, "", kLimit));
}

TEST(RandomState, ContinuesInOtherProcessesAndOnOtherMeshes) {
  const std::string file = testing::TempDir() + "tegula-state-" + std::to_string(getpid());
  EXPECT_NO_THROW(kAcrossProcesses.run(2, "save " + file, kLimit));
  for (int ranks : {1, 3}) EXPECT_NO_THROW(kAcrossProcesses.run(ranks, "load " + file, kLimit));
  std::remove(file.c_str());
}

// --- agreement

void different_seeds(World& world, const std::string&) {
  const DeviceMesh mesh = line(world);
  const at::Tensor x = ones({4, 4}, mesh, {Shard(0)});
  full_tensor(at::dropout(x, 0.5, true));
  at::manual_seed(7 + static_cast<std::uint64_t>(world.rank()));
  const at::Tensor y = at::dropout(x, 0.5, true);
  const std::string error = error_of([&] { full_tensor(y); });
  require(contains(error, "ranks have different values"), error);
  require(contains(error, "a random draw of aten::"), error);
  world.recover();  // rank 0's seed from here on
  full_tensor(at::dropout(x, 0.5, true));
}

const RankProgram of_different_seeds("draws of different seeds", different_seeds);

TEST(RandomState, SeedsThatDifferAreAnErrorOnAllRanksThatNamesTheOp) {
  of_different_seeds.run(2, "", 120);
}

void drew_differently(World& world, const std::string&) {
  const at::Tensor x = ones({6, 4}, line(world), {Shard(0)});
  for (int i = 0; i < world.rank(); ++i) at::rand_like(x);  // and nobody communicates
  world.recover();
  for (int i = 0; i < 3; ++i) full_tensor(at::rand_like(x));
}

const RankProgram of_different_counts("draws of different counts", drew_differently);

TEST(RandomState, RanksAgreeAgainAfterARecoveryHoweverOftenEachDrew) {
  of_different_counts.run(3, "", 120);
}

}  // namespace random_state_test
}  // namespace tegula
