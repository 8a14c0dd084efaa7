// A step of training that throws, on one rank or on all, wherever it does: no parameter is written,
// and after recover() where one rank threw, and zero_grad(), the next step is right to the bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <utility>

#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tegula/random/random.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace throwing_step_test {

// Ops of this thread are counted, those inside of others too, and one of them throws.
struct OpCount {
  enum class Of { All, Outermost };
  Of of = Of::All;
  int seen = 0;
  int throws_at = -1;
  int depth = 0;
};
thread_local OpCount op_count;

void count_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (op_count.of == OpCount::Of::All || op_count.depth == 0) {
    if (op_count.seen++ == op_count.throws_at)
      throw std::runtime_error("planted at " + op.schema().name());
  }
  struct Deeper {
    Deeper() { ++op_count.depth; }
    ~Deeper() { --op_count.depth; }
  } const deeper;
  constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kMode), stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&count_op>());
}

// Ops pass count_op while it stands.
class Counting {
 public:
  explicit Counting(OpCount start)
      : include_(c10::DispatchKeySet(c10::DispatchKey::TESTING_ONLY_GenericMode)) {
    op_count = start;
  }
  ~Counting() { op_count = {}; }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
};

// A table, two layers of which the first is cut by columns and the second by rows, dropout.
struct Network : torch::nn::Module {
  Network() {
    table = register_parameter("table", numbers({6, 4}, 1));
    up = register_parameter("up", numbers({8, 4}, 2));
    down = register_parameter("down", numbers({4, 8}, 3));
  }
  at::Tensor loss(const at::Tensor& words) const {
    const at::Tensor hidden = at::gelu(at::linear(at::embedding(table, words), up));
    return at::linear(at::dropout(hidden, 0.5, /*train=*/true), down).square().mean();
  }
  at::Tensor table, up, down;
};

enum class Over { Replicas, Shards };  // what the data axis holds

class Training {
 public:
  Training(const DeviceMesh& mesh, Over over)
      : mesh_(mesh),
        optimizer_(placed_parameters(over), torch::optim::SGDOptions(0.1).momentum(0.9)) {}

  at::Tensor words(int step) const {
    return (at::arange(12, at::kLong) * 5 + step).remainder(6).reshape({4, 3});
  }
  void gradients(int step) { gradients_of(words(step)); }
  void gradients_of(const at::Tensor& words) {
    optimizer_.zero_grad();
    network.loss(shard_batch(words, mesh_)).backward();
  }
  void write() {
    clip_grad_norm_(network.parameters(), 0.1);
    optimizer_.step();
  }
  std::vector<at::Tensor> tiles() const {
    std::vector<at::Tensor> tiles;
    for (const at::Tensor& one : network.parameters()) {
      tiles.push_back(to_local(one.detach()).clone());
    }
    return tiles;
  }

  Network network;

 private:
  std::vector<at::Tensor> placed_parameters(Over over) {
    parallelize_module(network, mesh_["tp"],
                       {{"table", VocabularyCut()}, {"up", Colwise()}, {"down", Rowwise()}},
                       kSameOnAllRanks);
    if (over == Over::Replicas) {
      replicate(network, mesh_["dp"], {.bucket_bytes = 200});  // two gradients, and one
    } else {
      fully_shard(network, mesh_["dp"]);
    }
    return network.parameters();
  }

  DeviceMesh mesh_;
  torch::optim::SGD optimizer_;
};

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

enum class Who { OneRank, AllRanks };
// Gradients of a step of which some rank, or all, fail.
using FailingGradients = std::function<void(Training&, int step)>;

// Each step is tried with the fault first, then without; compared with steps that had none.
void expect_unharmed(World& world, Over over, Who who, int steps, const FailingGradients& fail) {
  const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
  Training clean(mesh, over), tried(mesh, over);
  for (int step = 0; step < steps; ++step) {
    manual_seed(world, static_cast<std::uint64_t>(step));
    clean.gradients(step);
    clean.write();

    const std::vector<at::Tensor> before = tried.tiles();
    const std::string error = error_of([&] {
      fail(tried, step);
      tried.write();
    });
    EXPECT_NE(error, "nothing was thrown") << step;
    EXPECT_TRUE(equal(tried.tiles(), before)) << step << error;
    if (who == Who::OneRank) world.recover();
    manual_seed(world, static_cast<std::uint64_t>(step));
    tried.gradients(step);
    tried.write();
    EXPECT_TRUE(equal(tried.tiles(), clean.tiles())) << step << error;
  }
}

void expect_unharmed(Who who, int steps, const std::function<FailingGradients(World&)>& make) {
  for (const Over over : {Over::Replicas, Over::Shards}) {
    run_impatient(4, [&](World& world) { expect_unharmed(world, over, who, steps, make(world)); });
  }
}

constexpr int kSteps = 30;

// The first step counts ops, later ones throw at one of them.
FailingGradients at_ops(OpCount::Of of, const std::function<bool(int step)>& throws_here) {
  auto ops = std::make_shared<int>(0);
  return [=](Training& training, int step) {
    if (step == 0) {
      training.gradients(0);  // decisions are remembered from here on
      const Counting counting({.of = of});
      training.gradients(0);
      *ops = op_count.seen;
      EXPECT_GT(*ops, kSteps);
    }
    const int at = throws_here(step) ? step * *ops / kSteps : -1;
    const Counting counting({.of = of, .throws_at = at});
    training.gradients(step);
  };
}

TEST(ThrowingStep, AtAnyOpOfOneRank) {
  expect_unharmed(Who::OneRank, kSteps, [](World& world) {
    return at_ops(OpCount::Of::All, [rank = world.rank()](int step) { return rank == step % 4; });
  });
}

TEST(ThrowingStep, AtAnyOpOfAllRanks) {
  expect_unharmed(Who::AllRanks, kSteps,
                  [](World&) { return at_ops(OpCount::Of::Outermost, [](int) { return true; }); });
}

// A word that the table does not have: the ranks that hold it throw.
TEST(ThrowingStep, ByBadInputOfSomeRanks) {
  expect_unharmed(Who::OneRank, 3, [](World&) {
    return [](Training& training, int step) {
      at::Tensor words = training.words(step);
      words[step][0] = 99;
      training.gradients_of(words);
    };
  });
}

TEST(ThrowingStep, ByBadInputOfAllRanks) {
  expect_unharmed(Who::AllRanks, 3, [](World&) {
    return [](Training& training, int step) {
      training.gradients_of(training.words(step).to(at::kDouble));
    };
  });
}

// In the hook of a leaf, when other gradients are on their way already.
FailingGradients by_hook(const World& world, Who who) {
  return [who, rank = world.rank()](Training& training, int step) {
    const bool throws_here = who == Who::AllRanks || rank == step % 4;
    const at::Tensor leaf = training.network.parameters()[static_cast<std::size_t>(step) % 3];
    const unsigned hook = leaf.register_hook([throws_here](const at::Tensor&) {
      if (throws_here) throw std::runtime_error("a hook of the user's");
    });
    try {
      training.gradients(step);
    } catch (...) {
      leaf.remove_hook(hook);
      throw;
    }
    leaf.remove_hook(hook);
  };
}

TEST(ThrowingStep, InAHookOfOneRank) {
  expect_unharmed(Who::OneRank, 6, [](World& world) { return by_hook(world, Who::OneRank); });
}

TEST(ThrowingStep, InAHookOfAllRanks) {
  expect_unharmed(Who::AllRanks, 6, [](World& world) { return by_hook(world, Who::AllRanks); });
}

}  // namespace throwing_step_test
}  // namespace tegula
