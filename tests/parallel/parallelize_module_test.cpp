// Modules split by plans of styles give what the whole modules give.
#include "tegula/parallel/parallelize_module.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <array>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace parallelize_module_test {

namespace nn = torch::nn;

// Rows of a table through two layers; sizes that no mesh divides.
struct Network : nn::Module {
  Network()
      : tokens(register_module("tokens", nn::Embedding(11, 6))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({6})))),
        up(register_module("up", nn::Linear(6, 9))),
        down(register_module("down", nn::Linear(9, 6))),
        head(register_module("head", nn::Linear(6, 11))) {
    to(at::kDouble);
    std::uint64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), ++seed));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = tokens(ids);
    x = x + down(at::gelu(up(norm(x))));
    return head(x);
  }
  at::Tensor loss(const at::Tensor& ids) { return forward(ids).square().mean(); }

  nn::Embedding tokens;
  nn::LayerNorm norm;
  nn::Linear up, down, head;
};

const ParallelPlan kPlan = {{"tokens", VocabularyCut()},
                            {"norm", Sequence()},
                            {"up", Colwise()},
                            {"down", Rowwise()},
                            {"head", Colwise()}};

at::Tensor some_ids() { return at::remainder(at::arange(15, at::kLong) * 7, 11).view({5, 3}); }

TEST(ParallelizeModule, TrainsAsOneRank) {
  const auto plain = std::make_shared<Network>();
  const at::Tensor loss = plain->loss(some_ids());
  loss.backward();
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const std::int64_t dp = ranks == 4 ? 2 : 1;
      const DeviceMesh mesh = world.mesh({{"dp", dp}, {"tp", ranks / dp}});
      const auto ours = std::make_shared<Network>();
      parallelize_module(*ours, mesh["tp"], kPlan, kSameOnAllRanks);
      const at::Tensor got = ours->loss(shard_batch(some_ids(), mesh));
      got.backward();
      EXPECT_EQ(difference(full_tensor(got), loss.detach()), "");
      const auto parameters = ours->named_parameters();
      for (const auto& one : plain->named_parameters()) {
        EXPECT_EQ(difference(full_tensor(parameters[one.key()].grad()), one.value().grad()), "")
            << one.key();
      }
      EXPECT_EQ(to_string(placements_of(ours->up->weight)), "[R, S(0)]");
      EXPECT_EQ(to_string(placements_of(ours->up->bias)), "[R, S(0)]");
      EXPECT_EQ(to_string(placements_of(ours->down->weight)), "[R, S(1)]");
      EXPECT_EQ(to_string(placements_of(ours->down->bias)), "[R, R]");
      EXPECT_EQ(to_string(placements_of(ours->tokens->weight)), "[R, S(0)]");
    });
  }
}

TEST(ParallelizeModule, AColwiseAndARowwiseLayerTakeOneReduction) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    nn::Sequential layers(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 6));
    parallelize_module(*layers, mesh, {{"0", Colwise()}, {"2", Rowwise()}}, kSameOnAllRanks);
    const at::Tensor x = distribute_tensor(at::ones({4, 6}), mesh, {Replicate()}, kSameOnAllRanks);
    const CommLog log(world);
    const at::Tensor y = placed(layers->forward(x), "tp", Replicate());
    EXPECT_EQ(log.size(), 1U) << log.to_string();
  });
}

// Query, key and value in one layer: each rank has its heads of all three.
TEST(ParallelizeModule, APackedLayerSplitsWithoutCommunication) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    nn::Linear plain(6, 24), packed(6, 24);
    for (const nn::Linear& layer : {plain, packed}) {
      layer->weight.set_data(numbers({24, 6}, 1).to(at::kFloat));
      layer->bias.set_data(numbers({24}, 2).to(at::kFloat));
    }
    parallelize_module(*packed, mesh, {{"weight", PackedColwise(3)}, {"bias", PackedColwise(3)}},
                       kSameOnAllRanks);
    const at::Tensor x = numbers({4, 6}).to(at::kFloat);
    const CommLog log(world);
    const std::vector<at::Tensor> parts =
        packed(distribute_tensor(x, mesh, {Replicate()}, kSameOnAllRanks)).chunk(3, -1);
    EXPECT_TRUE(log.empty()) << log.to_string();
    const std::vector<at::Tensor> wholes = plain(x).chunk(3, -1);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(to_string(placements_of(parts[k])), "[S(1)]");
      EXPECT_EQ(difference(full_tensor(parts[k]).detach(), wholes[k].detach(), 1e-5), "");
    }
  });
}

// Attention with grouped queries, query, key and value in one layer of unequal parts.
struct GroupedAttention : nn::Module {
  GroupedAttention(std::int64_t queries_in, std::int64_t keys_in)
      : queries(queries_in), keys(keys_in) {
    qkv = register_module("qkv", nn::Linear(6, (queries + 2 * keys) * kHead));
    out = register_module("out", nn::Linear(queries * kHead, 6));
    to(at::kDouble);
    std::uint64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), ++seed));
  }
  std::vector<at::Tensor> parts(const at::Tensor& x) {
    return qkv(x).split_with_sizes({queries * kHead, keys * kHead, keys * kHead}, -1);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto heads = [&](const at::Tensor& part) {
      return part.reshape({x.size(0), x.size(1), -1, kHead}).transpose(1, 2);
    };
    const std::vector<at::Tensor> all = parts(x);
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads(all[0]), heads(all[1]), heads(all[2]), {}, 0.0, /*is_causal=*/true,
        /*scale=*/std::nullopt, /*enable_gqa=*/true);
    return out(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), queries * kHead}));
  }
  static constexpr std::int64_t kHead = 4;
  std::int64_t queries, keys;
  nn::Linear qkv = nullptr, out = nullptr;
};

TEST(ParallelizeModule, APackedLayerOfUnequalPartsTrainsAsOneRank) {
  // groups that divide, that do not, fewer groups than ranks
  for (const auto& [queries, keys, ranks] :
       std::vector<std::array<std::int64_t, 3>>{{8, 2, 2}, {6, 3, 2}, {6, 3, 3}, {6, 2, 4}}) {
    GroupedAttention plain(queries, keys);
    const at::Tensor x = numbers({2, 3, 6}, 7);
    const at::Tensor want = plain.forward(x);
    want.square().sum().backward();
    run_impatient(static_cast<int>(ranks), [&, q = queries, k = keys](World& world) {
      const DeviceMesh mesh = world.mesh({{"tp", world.size()}});
      GroupedAttention ours(q, k);
      parallelize_module(ours, mesh, {{"qkv", PackedColwise({q, k, k})}, {"out", Rowwise()}},
                         kSameOnAllRanks);
      const at::Tensor got =
          ours.forward(distribute_tensor(x, mesh, {Replicate()}, kSameOnAllRanks));
      EXPECT_EQ(difference(full_tensor(got).detach(), want.detach()), "");
      got.square().sum().backward();
      const auto parameters = ours.named_parameters();
      for (const auto& one : plain.named_parameters()) {
        EXPECT_EQ(difference(full_tensor(parameters[one.key()].grad()), one.value().grad()), "")
            << one.key();
        EXPECT_EQ(spec_of(parameters[one.key()].grad()).placements(),
                  spec_of(parameters[one.key()]).placements());
      }
    });
  }
}

TEST(ParallelizeModule, UnequalPartsSplitWithoutCommunicationInStrictMode) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    GroupedAttention ours(6, 3);
    const Style by_groups("by groups", [](const StyledParameter& parameter) -> Placement {
      if (parameter.tensor.dim() < 2) return Replicate();
      return Shard(1, Cut::ragged({16, 8}));
    });
    parallelize_module(ours, mesh, {{"qkv", PackedColwise({6, 3, 3})}, {"out", by_groups}},
                       kSameOnAllRanks);
    // two groups of heads and one: 4 and 2 heads of queries, 2 and 1 of keys and values
    EXPECT_EQ(to_string(placements_of(ours.qkv->weight)), "[S(0, sizes=[16, 8, 8, 4, 8, 4])]");
    const at::Tensor x =
        distribute_tensor(numbers({2, 3, 6}, 7), mesh, {Replicate()}, kSameOnAllRanks);
    const CommLog log(world);
    const StrictMode strict;
    const std::vector<at::Tensor> parts = ours.parts(x);
    EXPECT_EQ(to_string(placements_of(parts[0])), "[S(2, sizes=[16, 8])]");
    EXPECT_EQ(to_string(placements_of(parts[1])), "[S(2, sizes=[8, 4])]");
    EXPECT_EQ(to_string(placements_of(ours.qkv(x).narrow(-1, 36, 12))), "[S(2, sizes=[8, 4])]");
    EXPECT_EQ(to_string(placements_of(ours.forward(x))), "[P(sum)]");
    GroupedAttention even(8, 2);
    parallelize_module(even, mesh, {{"qkv", PackedColwise({8, 2, 2})}, {"out", Rowwise()}},
                       kSameOnAllRanks);
    EXPECT_EQ(to_string(placements_of(even.forward(x))), "[P(sum)]");
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

// Parts side by side as a packed layer leaves them, taken as they are by the layer after it.
TEST(ParallelizeModule, APackedRowwiseLayerTakesPackedInputsAsTheyAre) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    nn::Sequential plain(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 6));
    const at::Tensor x = numbers({4, 6}).to(at::kFloat);
    std::uint64_t seed = 0;
    for (at::Tensor& parameter : plain->parameters()) {
      parameter.set_data(numbers(parameter.sizes(), ++seed).to(at::kFloat));
    }
    const at::Tensor want = plain->forward(x);
    parallelize_module(*plain, mesh, {{"0", PackedColwise({5, 3})}, {"2", PackedRowwise({5, 3})}},
                       kSameOnAllRanks);
    EXPECT_EQ(to_string(placements_of(plain->parameters()[2])), "[S(1, sizes=[3, 2, 2, 1])]");
    EXPECT_EQ(to_string(placements_of(plain->parameters()[3])), "[R]");
    const CommLog log(world);
    const at::Tensor got =
        plain->forward(distribute_tensor(x, mesh, {Replicate()}, kSameOnAllRanks));
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_EQ(difference(full_tensor(got).detach(), want.detach(), 1e-5), "");
  });
}

// A plan that begins so has to say something of every parameter; with all other mistakes.
TEST(ParallelizeModule, AParameterThatAPlanHasToNameAndDoesNotIsAMistake) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const auto ours = std::make_shared<Network>();
    ParallelPlan all = kPlan;
    all.insert(all.begin(), {"**", Refused()});
    EXPECT_TRUE(contains(explain(all, *ours, mesh), "head.weight"));
    all.pop_back();
    all.emplace_back("hed", Colwise());
    const std::string error = error_of([&] { parallelize_module(*ours, mesh, all); });
    EXPECT_TRUE(contains(error, "a plan does not fit the module, in 3 places")) << error;
    EXPECT_TRUE(contains(error, "\"hed\"; nearest head")) << error;
    EXPECT_TRUE(contains(error, "head.weight")) << error;
    EXPECT_TRUE(contains(error, "head.bias")) << error;
    EXPECT_TRUE(contains(error, "the plan has to name it, and does not")) << error;
    EXPECT_FALSE(is_dtensor(ours->up->weight));
    const std::string twice = error_of([&] {
      parallelize_module(
          *ours, mesh, {{"**", Refused()}, {"up", Rowwise()}, {"up", Colwise()}, {"x", Rowwise()}});
    });
    EXPECT_TRUE(contains(twice, "a pattern has no effect")) << twice;
    EXPECT_TRUE(contains(twice, "\"x\"")) << twice;
    EXPECT_TRUE(contains(twice, "tokens.weight")) << twice;
  });
}

TEST(ParallelizeModule, ForOneAxisAfterTheOther) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    nn::Linear layer(6, 8);
    const at::Tensor whole = numbers({8, 6}).to(at::kFloat);
    layer->weight.set_data(whole.clone());
    parallelize_module(*layer, mesh["tp"], {{"weight", Colwise()}}, {.source = 0, .order = {}});
    parallelize_module(*layer, mesh["dp"], {{"weight", Rowwise()}});
    EXPECT_EQ(to_string(placements_of(layer->weight)), "[S(1), S(0)]");
    if (world.rank() == 0) {
      EXPECT_EQ(difference(to_local(layer->weight).detach(), whole.narrow(0, 0, 4).narrow(1, 0, 3)),
                "");
    }
  });
}

TEST(ParallelizeModule, ReportsAllMistakesOfAPlanAtOnceAndChangesNothing) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const auto ours = std::make_shared<Network>();
    const std::string unmatched = error_of([&] {
      parallelize_module(*ours, mesh, {{"ups", Colwise()}, {"up", Colwise()}, {"dwn", Rowwise()}});
    });
    EXPECT_TRUE(contains(unmatched, "a plan does not fit the module, in 2 places")) << unmatched;
    EXPECT_TRUE(contains(unmatched, "\"ups\"; nearest up")) << unmatched;
    EXPECT_TRUE(contains(unmatched, "\"dwn\"; nearest down")) << unmatched;
    const std::string uneven = error_of([&] {
      parallelize_module(*ours, mesh, {{"up", PackedColwise(2)}, {"head", PackedColwise(2)}});
    });
    EXPECT_TRUE(contains(uneven, "in 4 places")) << uneven;
    EXPECT_TRUE(contains(uneven, "head.bias")) << uneven;
    EXPECT_FALSE(is_dtensor(ours->up->weight));
    const DeviceMesh grid = world.mesh({{"dp", 1}, {"tp", 2}});
    EXPECT_TRUE(contains(error_of([&] { parallelize_module(*ours, grid, kPlan); }),
                         "a plan is about one axis"));
    EXPECT_TRUE(contains(error_of([&] { parallelize_module(*ours, grid.flatten("all"), kPlan); }),
                         "not about joined or split ones"));
  });
}

TEST(Explain, ListsBytesPerRank) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 1}, {"tp", 2}});
    const nn::Linear layer(6, 9);
    EXPECT_EQ(explain({{"weight", Colwise()}}, *layer, mesh["tp"]),
              "parameter  style    placed     whole bytes  bytes per rank\n"
              "weight     colwise  [R, S(0)]          216             120\n"
              "bias       -        [R, R]              36              36\n"
              "all                                    252             156\n");
  });
}

TEST(Explain, ListsWhatAStepSendsBeforeAnythingRuns) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // there are no values to compare
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 1}, {"tp", 2}});
    nn::Sequential layers(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 6));
    const at::Tensor before = layers->parameters()[0].detach().clone();
    const ParallelPlan plan = {{"0", Colwise()}, {"2", Rowwise()}};
    const CommLog log(world);
    const std::string text = explain(plan, *layers, mesh["tp"], [&](const DeviceMesh& imagined) {
      const at::Tensor x = zeros({5, 6}, imagined, {Shard(0), Replicate()});
      placed(layers->forward(x), "tp", Replicate()).square().sum().backward();
    });
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_TRUE(contains(text, "2.weight   rowwise  [R, S(1)]")) << text;
    EXPECT_TRUE(contains(text,
                         "a step sends    over  ranks  calls  bytes\n"
                         "all-reduce sum  tp        2      1    120\n"))
        << text;
    EXPECT_FALSE(is_dtensor(layers->parameters()[0]));
    EXPECT_TRUE(at::equal(layers->parameters()[0], before));
    EXPECT_FALSE(layers->parameters()[0].grad().defined());
    // what it says is what happens
    parallelize_module(*layers, mesh["tp"], plan, kSameOnAllRanks);
    const at::Tensor x = zeros({5, 6}, mesh, {Shard(0), Replicate()});
    placed(layers->forward(x), "tp", Replicate()).square().sum().backward();
    ASSERT_EQ(log.size(), 1U) << log.to_string();
    EXPECT_EQ(log.bytes(), 120);
  });
}

TEST(Plan, IsReadBackAsItIsPrinted) {
  ParallelPlan plan = kPlan;
  plan.emplace_back("blocks.*.qkv", PackedColwise(3));
  plan.emplace_back("grouped", PackedColwise({8, 2, 2}));
  plan.emplace_back("joined", PackedRowwise({5, 3}));
  plan.emplace_back("**", Refused());
  const std::string text = to_string(plan);
  EXPECT_EQ(text,
            "tokens: vocabulary\nnorm: sequence\nup: colwise\ndown: rowwise\nhead: colwise\n"
            "blocks.*.qkv: packed colwise 3\ngrouped: packed colwise [8, 2, 2]\n"
            "joined: packed rowwise [5, 3]\n**: refused\n");
  EXPECT_EQ(to_string(parse_plan(text)), text);
  EXPECT_EQ(to_string(parse_plan("\n a :  replicated \n\n")), "a: replicated\n");
  EXPECT_TRUE(contains(error_of([] { parse_plan("up colwise"); }), "has no pattern and style"));
  EXPECT_TRUE(contains(error_of([] { parse_plan("up: diagonal"); }), "no style of this name"));
  EXPECT_TRUE(contains(error_of([] { parse_plan("up: packed colwise 0"); }), "one part or more"));
  EXPECT_TRUE(contains(error_of([] { parse_plan("up: packed colwise []"); }), "one part or more"));
  EXPECT_TRUE(contains(error_of([] { parse_plan("up: packed rowwise [1, 0]"); }), "one unit"));
  EXPECT_TRUE(contains(error_of([] { parse_plan("up: packed rowwise x"); }), "cannot read"));
}

TEST(Placed, LeavesAPlainTensorAlone) {
  const at::Tensor x = numbers({3});
  EXPECT_TRUE(placed(x, "tp", Replicate()).is_same(x));
}

}  // namespace parallelize_module_test
}  // namespace tegula
