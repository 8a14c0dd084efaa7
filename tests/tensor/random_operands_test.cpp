// Random numbers that depend on operands: each rank draws for what it holds.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace random_operands_test {

std::int64_t gathered(const CommLog& log) {
  std::int64_t bytes = 0;
  for (const CommEntry& entry : log.entries()) {
    if (entry.kind == CommKind::AllGather) bytes += entry.bytes;
  }
  return bytes;
}

// Calls body(mesh, placement) on 1 to 4 ranks, the tensors of it uneven.
void for_each_cut(
    const std::function<void(const DeviceMesh&, const Placement&, const World&)>& body) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"a", ranks}});
      for (const Placement& placement :
           {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
        body(mesh, placement, world);
      }
    });
  }
}

TEST(RandomOperands, NumbersAroundMeansKeepTheCut) {
  const at::Tensor means = numbers({5, 7});
  for_each_cut([&](const DeviceMesh& mesh, const Placement& placement, const World& world) {
    const at::Tensor mean = distribute_tensor(means, mesh, {placement});
    const CommLog log(world);
    const at::Tensor exact = at::normal(mean, 0.0);
    const at::Tensor wide = at::normal(mean, 2.0);
    EXPECT_EQ(log.size(), 0U) << log.to_string();
    EXPECT_EQ(placements_of(wide), Placements{placement});
    EXPECT_EQ(difference(full_tensor(exact), means), "");
    EXPECT_GT(at::sub(full_tensor(wide), means).abs().max().item<double>(), 0.1);
  });
}

TEST(RandomOperands, DeviationsMayBeTensorsAndMustNotBeNegative) {
  for_each_cut([](const DeviceMesh& mesh, const Placement& placement, const World&) {
    const at::Tensor std = distribute_tensor(at::zeros({5, 7}), mesh, {placement});
    const at::Tensor mean = distribute_tensor(at::full({7}, 2.0f), mesh, {Replicate()});
    EXPECT_EQ(difference(full_tensor(at::normal(mean, std)), at::full({5, 7}, 2.0f)), "");
    EXPECT_EQ(difference(full_tensor(at::normal(2.0, std)), at::full({5, 7}, 2.0f)), "");
    EXPECT_THROW(at::normal(mean, at::sub(std, 1)), c10::Error);
  });
}

TEST(RandomOperands, ComplexNumbersAreDrawnByParts) {
  for_each_cut([](const DeviceMesh& mesh, const Placement& placement, const World& world) {
    const at::Tensor zeros = at::zeros({5, 7}, at::kComplexDouble);
    const at::Tensor x = distribute_tensor(zeros, mesh, {placement});
    const CommLog log(world);
    const at::Tensor like = at::randn_like(x);
    x.uniform_();
    EXPECT_EQ(log.size(), 0U) << log.to_string();
    EXPECT_EQ(placements_of(like), Placements{placement});
    const at::Tensor parts = at::view_as_real(full_tensor(x));
    EXPECT_TRUE(parts.gt(0).logical_and(parts.lt(1)).all().item<bool>());
    EXPECT_GT(at::view_as_real(full_tensor(like)).abs().min().item<double>(), 0);
  });
}

TEST(RandomOperands, OneOfSeveralIsDrawnByItsProbability) {
  at::Tensor weights = at::zeros({5, 7});
  for (int row = 0; row < 5; ++row) weights[row][(2 * row) % 7] = 0.5;
  for_each_cut([&](const DeviceMesh& mesh, const Placement& placement, const World&) {
    const at::Tensor p = distribute_tensor(weights, mesh, {placement});
    EXPECT_EQ(difference(full_tensor(at::multinomial(p, 1)), weights.argmax(1, true)), "");
    const at::Tensor both = full_tensor(at::multinomial(at::add(p, 1), 7));
    EXPECT_EQ(difference(std::get<0>(both.sort(1)), at::arange(7).expand({5, 7})), "");
    EXPECT_THROW(at::multinomial(at::sub(p, 1), 1), c10::Error);
    EXPECT_THROW(at::multinomial(at::mul(p, 0), 1), c10::Error);
  });
}

TEST(RandomOperands, ProbabilitiesOfTossesAreReadWhereTheyAre) {
  const at::Tensor chances = at::cat({at::zeros({5, 3}), at::ones({5, 4})}, 1);
  for_each_cut([&](const DeviceMesh& mesh, const Placement& placement, const World& world) {
    const at::Tensor p = distribute_tensor(chances, mesh, {placement});
    at::Tensor x = at::empty_like(p);
    const CommLog log(world);
    x.bernoulli_(p);
    EXPECT_EQ(gathered(log), 0) << log.to_string();
    EXPECT_EQ(difference(full_tensor(x), chances), "");
  });
}

TEST(RandomOperands, LeakyUnitsKeepTheirNoise) {
  const at::Tensor whole = at::cat({numbers({5, 6}), at::full({5, 1}, NAN, at::kDouble)}, 1);
  for_each_cut([&](const DeviceMesh& mesh, const Placement& placement, const World& world) {
    const at::Tensor x = distribute_tensor(whole, mesh, {placement});
    at::Tensor noise = at::zeros_like(x);
    const CommLog log(world);
    const at::Tensor y = at::rrelu_with_noise(x, noise, 0.25, 0.5, true);
    EXPECT_EQ(log.size(), 0U) << log.to_string();
    const at::Tensor slopes = full_tensor(noise);
    EXPECT_EQ(difference(full_tensor(y), whole * slopes), "");
    EXPECT_EQ(difference(slopes.eq(1), whole.le(0).logical_not()), "");
    EXPECT_TRUE(slopes.ge(0.25).all().item<bool>());
    EXPECT_EQ(difference(full_tensor(at::rrelu_with_noise(x, noise, 0.25, 0.75, false)),
                         at::leaky_relu(whole, 0.5)),
              "");
  });
}

}  // namespace random_operands_test
}  // namespace tegula
