// Training in virtual shards gives the same bits on any number of ranks.
#include "tegula/parallel/virtual_shards.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include "tegula/gradient/gradients.h"
#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace virtual_shards_test {

using inner::ShardRange;

// Two layers in f32 and one in f64, a parameter that is not used, and a buffer.
struct Network : torch::nn::Module {
  Network()
      : in(register_parameter("in", numbers({9, 7}, 1).to(at::kFloat))),
        shared(register_parameter("shared", numbers({9, 9}, 2).to(at::kFloat))),
        out(register_parameter("out", numbers({3, 9}, 3))),
        unused(register_parameter("unused", at::ones({2}))),
        scale(register_buffer("scale", at::full({9}, 0.7))) {}
  at::Tensor loss(const at::Tensor& x, const at::Tensor& classes) const {
    const at::Tensor hidden = at::tanh(at::linear(at::tanh(at::linear(x, in)), shared)) * scale;
    return at::cross_entropy_loss(
        at::linear(at::tanh(at::linear(hidden, shared)).to(at::kDouble), out), classes);
  }
  at::Tensor in, shared, out, unused, scale;
};

std::vector<at::Tensor> batch_of(std::int64_t samples, int step) {
  return {numbers({samples, 7}, 100 + static_cast<std::uint64_t>(step)).to(at::kFloat),
          (at::arange(samples, at::kLong) * 5 + step).remainder(3)};
}

at::Tensor shard_loss(const Network& network, const std::vector<at::Tensor>& samples) {
  EXPECT_FALSE(is_dtensor(network.in) || is_dtensor(network.scale));
  return network.loss(samples[0], samples[1]);
}

struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<double> losses;
};

Trained trained_on(World& world, std::int64_t samples, std::int64_t shards) {
  Network network;
  replicate(network, world.mesh({{"dp", world.size()}}));
  torch::optim::AdamW optimizer(network.parameters(), torch::optim::AdamWOptions(0.01));
  Trained trained;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = virtual_shards(network, batch_of(samples, step), shards,
                                           [&](const std::vector<at::Tensor>& part, std::int64_t) {
                                             return shard_loss(network, part);
                                           });
    clip_grad_norm_(network.parameters(), 0.2);
    optimizer.step();
    trained.losses.push_back(loss.item<double>());
  }
  for (const at::Tensor& one : network.parameters()) {
    trained.parameters.push_back(full_tensor(one.detach()));
  }
  return trained;
}

void expect_same_bits(std::int64_t samples, std::int64_t shards) {
  Trained want;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    run_impatient(ranks, [&](World& world) {
      const Trained got = trained_on(world, samples, shards);
      if (ranks == 1) {
        want = got;
        return;
      }
      EXPECT_EQ(got.losses, want.losses) << ranks;
      for (std::size_t k = 0; k < want.parameters.size(); ++k) {
        EXPECT_TRUE(at::equal(got.parameters[k], want.parameters[k])) << ranks << " ranks, " << k;
      }
    });
  }
}

TEST(VirtualShards, GiveTheSameBitsOnAnyNumberOfRanks) { expect_same_bits(31, 12); }
TEST(VirtualShards, MayBeMoreThanSamples) { expect_same_bits(5, 12); }
TEST(VirtualShards, MayBeFewerThanRanks) { expect_same_bits(31, 3); }

TEST(VirtualShards, AddTheGradientOfTheMeanLoss) {
  Network plain;
  const std::vector<at::Tensor> batch = batch_of(31, 0);
  const at::Tensor want = plain.loss(batch[0], batch[1]);
  want.backward();
  run_impatient(4, [&](World& world) {
    Network ours;
    replicate(ours, world.mesh({{"dp", 2}, {"tp", 2}})["dp"]);
    for (int times = 1; times <= 2; ++times) {
      const at::Tensor loss =
          virtual_shards(ours, batch, 12, [&](const std::vector<at::Tensor>& part, std::int64_t) {
            return shard_loss(ours, part);
          });
      EXPECT_NEAR(loss.item<double>(), want.item<double>(), 1e-6);
      EXPECT_EQ(difference(full_tensor(ours.shared.grad()), plain.shared.grad() * times, 1e-5), "");
      EXPECT_EQ(difference(full_tensor(ours.out.grad()), plain.out.grad() * times, 1e-5), "");
    }
    EXPECT_FALSE(ours.unused.grad().defined());
    EXPECT_EQ(to_string(placements_of(ours.in)), "[R, R]");
  });
}

TEST(VirtualShards, LeaveTheModuleAsItWas) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    replicate(ours, mesh);
    const std::vector<at::Tensor> batch = batch_of(4, 0);
    EXPECT_TRUE(contains(error_of([&] {
                           virtual_shards(ours, batch, 2,
                                          [](const auto&, std::int64_t) -> at::Tensor {
                                            throw std::runtime_error("a loss of the user's");
                                          });
                         }),
                         "a loss of the user's"));
    EXPECT_TRUE(is_dtensor(ours.in) && !ours.in.grad().defined());
    // the policy of replicate(): owed over dp while it is held, by the guard alone
    ours.loss(shard_batch(batch[0], mesh), shard_batch(batch[1], mesh)).backward();
    EXPECT_EQ(to_string(placements_of(ours.in.grad())), "[R]");
  });
}

TEST(VirtualShards, RefuseWhatWouldDependOnTheRanks) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}});
    Network ours;
    const auto loss = [&](const std::vector<at::Tensor>& part, std::int64_t) {
      return shard_loss(ours, part);
    };
    const auto error = [&](const std::vector<at::Tensor>& batch, std::int64_t shards,
                           const VirtualShardLoss& function) {
      return error_of([&] { virtual_shards(ours, batch, shards, function); });
    };
    EXPECT_TRUE(contains(error(batch_of(4, 0), 2, loss),
                         "virtual shards want every parameter and buffer replicated"));
    replicate(ours, mesh);
    EXPECT_TRUE(contains(error(batch_of(4, 0), 0, loss), "one virtual shard or more"));
    EXPECT_TRUE(contains(error({}, 2, loss), "a batch has a tensor or more"));
    EXPECT_TRUE(contains(error({at::ones({4}), at::ones({3})}, 2, loss),
                         "plain tensors with the same number of samples"));
    EXPECT_TRUE(contains(error({ones({4}, mesh, {Shard(0)})}, 2, loss),
                         "plain tensors with the same number of samples"));
    EXPECT_TRUE(contains(error(batch_of(4, 0), 2,
                               [&](const auto&, std::int64_t) {
                                 const at::NoGradGuard no_grad;
                                 ours.scale.add_(1);
                                 return ours.in.sum().requires_grad_();
                               }),
                         "a virtual shard wrote a buffer"));
    EXPECT_TRUE(at::equal(full_tensor(ours.scale), at::full({9}, 0.7)));
    EXPECT_TRUE(
        contains(error(batch_of(4, 0), 2, [&](const auto&, std::int64_t) { return ours.in * 1; }),
                 "a plain scalar with a history"));
    EXPECT_FALSE(ours.in.grad().defined());
    torch::nn::Module empty;
    EXPECT_TRUE(contains(error_of([&] { virtual_shards(empty, batch_of(4, 0), 2, loss); }),
                         "of a module with parameters"));
  });
}

// libtorch writes the statistics without a word to the buffers' version counters.
TEST(VirtualShards, RefuseBatchStatisticsInBuffersOfTheUser) {
  struct Normalized : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", at::ones({3}));
    at::Tensor mean = register_buffer("mean", at::zeros({3}));
    at::Tensor variance = register_buffer("variance", at::ones({3}));
    at::Tensor loss(const at::Tensor& x, bool training) const {
      return at::batch_norm(x, weight, {}, mean, variance, training, 0.1, 1e-5, false)
          .square()
          .mean();
    }
  };
  run_impatient(2, [](World& world) {
    Normalized ours;
    replicate(ours, world.mesh({{"dp", 2}}));
    const std::vector<at::Tensor> batch{numbers({8, 3}).to(at::kFloat)};
    const auto run = [&](bool training) {
      virtual_shards(ours, batch, 4, [&](const std::vector<at::Tensor>& part, std::int64_t) {
        return ours.loss(part[0], training);
      });
    };
    const std::string error = error_of([&] { run(true); });
    EXPECT_TRUE(contains(error, "a virtual shard wrote a buffer")) << error;
    EXPECT_TRUE(contains(error, "\"mean\"")) << error;
    EXPECT_FALSE(ours.weight.grad().defined());
    EXPECT_TRUE(at::equal(full_tensor(ours.mean), at::zeros({3})));
    run(false);
    EXPECT_TRUE(ours.weight.grad().defined());
  });
}

// One shard for two ranks: rank 1 computes it, and rank 0 none.
TEST(VirtualShards, ThrowOnAllRanksWhatOneOfThemThrows) {
  run_impatient(2, [](World& world) {
    Network ours;
    replicate(ours, world.mesh({{"dp", 2}}));
    const auto error = [&](const VirtualShardLoss& loss) {
      return error_of([&] { virtual_shards(ours, batch_of(4, 0), 1, loss); });
    };
    const auto expect = [&](const std::string& got, const std::string& want) {
      EXPECT_TRUE(contains(got, want)) << got;
      EXPECT_EQ(contains(got, "a virtual shard failed on another rank"), world.rank() == 0) << got;
      EXPECT_EQ(contains(got, "rank    1\n"), world.rank() == 0) << got;
    };
    expect(error([](const auto&, std::int64_t) -> at::Tensor {
             throw std::runtime_error("a loss of the user's");
           }),
           "a loss of the user's");
    expect(error([&](const auto&, std::int64_t) { return ours.in * 1; }),
           "a plain scalar with a history");
    const at::Tensor loss = virtual_shards(
        ours, batch_of(4, 0), 1,
        [&](const std::vector<at::Tensor>& part, std::int64_t) { return shard_loss(ours, part); });
    EXPECT_GT(loss.item<double>(), 0);
  });
}

// Law: the subtrees of all ranks are the tree's leaves, in order, each once, and nodes of the tree.
TEST(VirtualShards, SubtreesOfRanksPartitionTheTree) {
  for (std::int64_t shards = 1; shards <= 20; ++shards) {
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        for (const ShardRange& one :
             inner::subtrees({0, shards}, inner::shards_of(rank, ranks, shards))) {
          EXPECT_EQ(one.begin, next);
          next = one.end;
          ShardRange node{0, shards};
          while (node != one && node.size() > 1) {
            const std::int64_t middle = inner::split_of(node);
            node =
                one.begin < middle ? ShardRange{node.begin, middle} : ShardRange{middle, node.end};
          }
          EXPECT_EQ(node, one) << shards << " " << ranks;
        }
      }
      EXPECT_EQ(next, shards);
    }
  }
}

}  // namespace virtual_shards_test
}  // namespace tegula
