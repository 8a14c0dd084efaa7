// One norm over gradients wherever they are, compared with libtorch's own on the whole.
#include "tegula/parallel/clip_grad.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>

#include "tegula/comm/comm_log.h"
#include "tegula/gradient/gradients.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace clip_grad_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A leaf with a gradient.
at::Tensor with_grad(at::Tensor leaf, const at::Tensor& grad) {
  leaf.requires_grad_();
  leaf.mutable_grad() = grad;
  return leaf;
}

// Parameters of every kind, and the same on one rank.
struct Parameters {
  explicit Parameters(const DeviceMesh& mesh) {
    const auto add = [&](const DeviceMesh& on, const Placements& placements,
                         at::IntArrayRef shape) {
      const at::Tensor value = numbers(shape, next_), grad = numbers(shape, next_ + 1);
      next_ += 2;
      ours.push_back(with_grad(distribute_tensor(value, on, placements, kSameOnAllRanks),
                               distribute_tensor(grad, on, placements, kSameOnAllRanks)));
      plain.push_back(with_grad(value.clone(), grad.clone()));
    };
    add(mesh, {Replicate(), Shard(0)}, {5, 3});
    add(mesh, {Shard(1), Shard(0)}, {7, 3});
    add(mesh, {Replicate(), Replicate()}, {4});
    add(mesh, {Shard(0), Replicate()}, {1, 6});                       // one rank has nothing
    add(mesh, {Shard(0, Cut::ragged({0, 3})), Replicate()}, {3, 2});  // owned by the second
    add(mesh["tp"], {Shard(0)}, {3, 3});                              // on a slice
    ours.push_back(with_grad(numbers({2}, 90), numbers({2}, 91)));    // plain
    plain.push_back(with_grad(numbers({2}, 90), numbers({2}, 91)));
    ours.push_back(numbers({3}, 92).requires_grad_());  // without a gradient
    plain.push_back(numbers({3}, 92).requires_grad_());
  }

  void expect_equal() const {
    for (std::size_t k = 0; k < ours.size(); ++k) {
      if (!plain[k].grad().defined()) continue;
      const at::Tensor grad = ours[k].grad();
      EXPECT_EQ(difference(is_dtensor(grad) ? full_tensor(grad) : grad, plain[k].grad()), "") << k;
    }
  }

  std::vector<at::Tensor> ours, plain;

 private:
  std::uint64_t next_ = 1;
};

void on_a_grid(const std::function<void(World&, const DeviceMesh&)>& body) {
  run_impatient(4, [&](World& world) { body(world, world.mesh({{"dp", 2}, {"tp", 2}})); });
}

TEST(GradNorm, OfAnyOrderIsThatOfTheWholes) {
  on_a_grid([](World&, const DeviceMesh& mesh) {
    for (const double order : {1.0, 2.0, 3.0, 0.5, kInfinity}) {
      Parameters parameters(mesh);
      const double plain = torch::nn::utils::clip_grad_norm_(parameters.plain, 1e9, order);
      EXPECT_NEAR(grad_norm(parameters.ours, {.order = order}), plain, 1e-9 * plain) << order;
    }
  });
}

TEST(GradNorm, OfOrderZeroCountsElements) {
  on_a_grid([](World&, const DeviceMesh& mesh) {
    Parameters parameters(mesh);
    std::int64_t count = 0;
    for (const at::Tensor& one : parameters.plain) {
      if (one.grad().defined()) count += at::count_nonzero(one.grad()).item<std::int64_t>();
    }
    EXPECT_EQ(grad_norm(parameters.ours, {.order = 0}), static_cast<double>(count));
  });
}

TEST(GradNorm, TakesOneCollectiveOfOneNumber) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  on_a_grid([](World& world, const DeviceMesh& mesh) {
    Parameters parameters(mesh);
    const CommLog log(world);
    clip_grad_norm_(parameters.ours, 0.5);
    EXPECT_EQ(log.size(), 1U) << log.to_string();
    EXPECT_LE(log.bytes(), 8) << log.to_string();
  });
}

TEST(ClipGradNorm, ScalesAsOnOneRank) {
  on_a_grid([](World&, const DeviceMesh& mesh) {
    for (const double most : {0.5, 1e6}) {
      Parameters parameters(mesh);
      const double plain = torch::nn::utils::clip_grad_norm_(parameters.plain, most);
      EXPECT_NEAR(clip_grad_norm_(parameters.ours, most), plain, 1e-9 * plain);
      parameters.expect_equal();
    }
  });
}

TEST(ClipGradNorm, CountsAndScalesATiedParameterOnce) {
  on_a_grid([](World&, const DeviceMesh& mesh) {
    Parameters parameters(mesh), twice(mesh);
    twice.ours.push_back(twice.ours[0]);
    EXPECT_EQ(clip_grad_norm_(twice.ours, 0.5), clip_grad_norm_(parameters.ours, 0.5));
    EXPECT_EQ(difference(full_tensor(twice.ours[0].grad()), full_tensor(parameters.ours[0].grad())),
              "");
  });
}

TEST(ClipGradNorm, PaysFirstWhatGradientsOwe) {
  on_a_grid([](World&, const DeviceMesh& mesh) {
    at::Tensor weight =
        distribute_tensor(numbers({3, 4}, 1), mesh, {Replicate(), Shard(0)}, kSameOnAllRanks);
    weight.requires_grad_();
    at::Tensor plain = numbers({3, 4}, 1).requires_grad_();
    const at::Tensor x = numbers({6, 4}, 2);
    {
      const GradientPolicyGuard hold{GradientPolicy(GradientReduction::Hold)};
      at::linear(shard_batch(x, mesh), weight).square().sum().backward();
    }
    at::linear(x, plain).square().sum().backward();
    EXPECT_NEAR(clip_grad_norm_({weight}, 1), torch::nn::utils::clip_grad_norm_(plain, 1), 1e-6);
    EXPECT_EQ(difference(full_tensor(weight.grad()), plain.grad()), "");
  });
}

TEST(ClipGradNorm, OfWhatIsNoNumberMakesAllGradientsNone) {
  on_a_grid([](World& world, const DeviceMesh& mesh) {
    Parameters parameters(mesh);
    // one element, in the tile of one rank
    if (world.rank() == 3) to_local(parameters.ours[1].grad()).fill_(std::nan(""));
    EXPECT_TRUE(std::isnan(clip_grad_norm_(parameters.ours, 1)));
    EXPECT_TRUE(at::isnan(full_tensor(parameters.ours[2].grad())).all().item<bool>());
    EXPECT_TRUE(std::isnan(grad_norm(parameters.ours, {.order = kInfinity})));
  });
}

TEST(ClipGradNorm, OfNothingIsZero) {
  EXPECT_EQ(clip_grad_norm_({}, 1), 0);
  EXPECT_EQ(clip_grad_norm_({numbers({3}).requires_grad_()}, 1), 0);
}

// Stages of a pipeline: ranks hold different parameters, and agree on one norm.
TEST(ClipGradNorm, OverRanksWithDifferentParameters) {
  run_impatient(3, [](World& world) {
    const at::Tensor mine = with_grad(numbers({4}), at::full({4}, 1.0 + world.rank(), at::kDouble));
    const DeviceMesh alone = world.mesh({{"one", 1}}, {world.rank()});
    const at::Tensor ours = with_grad(distribute_tensor(mine.detach(), alone, {Replicate()}),
                                      distribute_tensor(mine.grad(), alone, {Replicate()}));
    EXPECT_NEAR(grad_norm({ours}, {.among = world.group()}), std::sqrt(4 * (1 + 4 + 9)), 1e-12);
  });
}

TEST(ClipGradValue, LimitsEveryElement) {
  on_a_grid([](World&, const DeviceMesh& mesh) {
    Parameters parameters(mesh);
    clip_grad_value_(parameters.ours, 0.3);
    torch::nn::utils::clip_grad_value_(parameters.plain, 0.3);
    parameters.expect_equal();
  });
}

TEST(ClipGrad, RefusesANegativeLimit) {
  EXPECT_TRUE(contains(error_of([] { clip_grad_norm_({}, -1); }),
                       "gradients cannot be clipped to a negative size"));
  EXPECT_TRUE(contains(error_of([] { clip_grad_value_({}, std::nan("")); }),
                       "gradients cannot be clipped to a negative size"));
}

}  // namespace clip_grad_test
}  // namespace tegula
