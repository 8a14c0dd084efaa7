// Every way of carrying out a call is decided once per kind of call, and what the decision depends
// on is part of the kind.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/dispatch/decision_cache.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"
#include "tests/tensor/small_transformer.h"

namespace tegula::inner {
namespace decisions_test {

using Call1 = at::Tensor (*)(const at::Tensor&);

struct Way {
  const char* name;
  Call1 call;
};

// One op for each way; x is [4, 6] with its columns cut.
const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"a rule", [](const at::Tensor& x) { return x + x; }},
      {"a rule with a number", [](const at::Tensor& x) { return x * 3; }},
      {"a view of tiles", [](const at::Tensor& x) { return x.t(); }},
      {"a link", [](const at::Tensor& x) { return x.select(1, 2); }},
      {"a decomposition", [](const at::Tensor& x) { return at::softmax(x, 1); }},
      {"a mean", [](const at::Tensor& x) { return at::mean(x); }},
      {"a tile op", [](const at::Tensor& x) { return at::full_like(x, 2.5); }},
      {"a conversion", [](const at::Tensor& x) { return x.to(at::kBFloat16); }},
      {"the universal path", [](const at::Tensor& x) { return at::cumprod(x, 1); }},
      {"whole numbers and a default", [](const at::Tensor& x) { return x.gt(0).to(at::kInt) / 2; }},
      {"a product", [](const at::Tensor& x) { return at::matmul(x, x.t()); }},
  };
  return all;
}

class Mode {
 public:
  virtual ~Mode() = default;
};

class NoGrad final : public Mode {
  at::NoGradGuard guard_;
};

class Inference final : public Mode {
  c10::InferenceMode guard_;
};

class DoubleByDefault final : public Mode {
 public:
  DoubleByDefault() { torch::set_default_dtype(caffe2::TypeMeta::Make<double>()); }
  ~DoubleByDefault() override { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); }
};

class Autocast final : public Mode {
 public:
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() override {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

using MakeMode = std::unique_ptr<Mode> (*)();
template <class Kind>
std::unique_ptr<Mode> make() {
  return std::make_unique<Kind>();
}
constexpr MakeMode kModes[] = {
    make<Mode>, make<NoGrad>,   make<Mode>, make<Inference>, make<DoubleByDefault>,
    make<Mode>, make<Autocast>, make<Mode>};

// One rank: the default element type belongs to the process.
TEST(Decisions, HoldForTheModesInWhichTheyWereMade) {
  const at::Tensor plain = numbers({4, 6}).to(at::kFloat);
  run_impatient(1, [&](World& world) {
    const at::Tensor x = distribute_tensor(plain, world.mesh({{"a", 1}}), {Shard(1)});
    for (const MakeMode mode : kModes) {
      for (int round = 0; round < 2; ++round) {
        for (const Way& way : ways()) {
          const std::unique_ptr<Mode> guard = mode();
          EXPECT_EQ(difference(full_tensor(way.call(x)), way.call(plain), 1e-5), "") << way.name;
        }
      }
    }
  });
}

TEST(Decisions, AreMadeOncePerKindOfCall) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode looks at every call
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({4, 6}), world.mesh({{"a", 2}}), {Shard(1)});
    auto& cache = world.part<DecisionCache>();
    for (const Way& way : ways()) {
      const std::size_t before = cache.size();
      way.call(x);
      const std::size_t after = cache.size();
      EXPECT_GT(after, before) << way.name;
      way.call(x);
      EXPECT_EQ(cache.size(), after) << way.name;
    }
  });
}

TEST(Decisions, ThatOneRankForgetsAreMadeAgainAlike) {
  run_impatient(2, [](World& world) {
    if (world.rank() == 0) world.part<DecisionCache>().keep_at_most(1);
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    small::Model model(small::tensor_parallel_moves(mesh));
    model.distribute(mesh, Shard(0));
    torch::optim::AdamW optimizer(model.module().parameters(), torch::optim::AdamWOptions(0.01));
    const small::Batch batch = small::distributed_batch(mesh);
    double first = 0;
    double last = 0;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = model.loss(batch);
      loss.backward();
      optimizer.step();
      last = loss.item<double>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, first);
  });
}

}  // namespace decisions_test
}  // namespace tegula::inner
