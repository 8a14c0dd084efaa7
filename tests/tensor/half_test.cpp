// Halves and bfloat16: what libtorch adds up as floats is added up as floats here, whoever holds
// the parts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/tensor/dtensor.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace half_test {

using Function = std::function<at::Tensor(const at::Tensor&)>;

// Of a whole [3000, 4] of one value, whose sum is more than a half can hold.
void expect_close_to_plain(const Function& function) {
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor plain = at::full({3000, 4}, 40, type);
    const at::Tensor want = function(plain).to(at::kDouble);
    ASSERT_TRUE(at::isfinite(want).all().item<bool>());
    run_impatient(2, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      for (const Placement& placement :
           {Placement(Shard(0)), Placement(Shard(1)), Placement(Partial()),
            Placement(Partial(ReduceOp::Avg)), Placement(Partial(ReduceOp::Max)),
            Placement(MaskPartial(9)), Placement(Replicate())}) {
        const at::Tensor x = distribute_tensor(plain, mesh, {placement});
        const at::Tensor got = full_tensor(function(x));
        EXPECT_EQ(got.scalar_type(), function(plain).scalar_type());
        EXPECT_TRUE(at::allclose(got.to(at::kDouble), want, 1e-2, 1e-6))
            << to_string(placement) << " of " << type << ": " << got << " instead of " << want;
      }
    });
  }
}

TEST(Halves, AMeanOfAllIsWhatPlainTensorsGive) {
  expect_close_to_plain([](const at::Tensor& x) { return x.mean(); });
}

TEST(Halves, AMeanOverADimIsWhatPlainTensorsGive) {
  expect_close_to_plain([](const at::Tensor& x) { return x.mean(0); });
  expect_close_to_plain([](const at::Tensor& x) { return x.mean(1, /*keepdim=*/true); });
}

TEST(Halves, AMeanInAnotherTypeIsWhatPlainTensorsGive) {
  expect_close_to_plain([](const at::Tensor& x) { return x.mean(at::kFloat); });
  expect_close_to_plain([](const at::Tensor& x) { return x.mean({0}, false, at::kDouble); });
}

TEST(Halves, AMeanOfFloatsInHalvesIsWhatPlainTensorsGive) {
  run_impatient(2, [](World& world) {
    const at::Tensor plain = at::full({3000}, 40.0f);
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Partial()});
    EXPECT_EQ(full_tensor(x.mean(at::kHalf)).item<double>(), 40);
  });
}

TEST(Halves, AMeanStaysOwed) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(at::full({4, 4}, 2, at::kHalf), mesh, {Shard(0)});
    EXPECT_EQ(to_string(spec_of(x.mean())), "f16[] on (a=2) as [P(sum)]");
    EXPECT_EQ(to_string(spec_of(x.mean(0))), "f16[4] on (a=2) as [P(sum)]");
  });
}

TEST(Halves, ASquaredErrorIsWhatPlainTensorsGive) {
  expect_close_to_plain([](const at::Tensor& x) { return at::mse_loss(x, x * 0.5); });
}

TEST(Halves, SoftmaxAlongADimOfManyIsWhatPlainTensorsGive) {
  const at::Tensor plain = at::zeros({2, 130'000}, at::kHalf);
  const at::Tensor grad = at::ones({2, 130'000}, at::kHalf);
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(1)});
    const at::Tensor g = distribute_tensor(grad, mesh, {Shard(1)});
    EXPECT_EQ(difference(full_tensor(x.softmax(1)), plain.softmax(1), 1e-3), "");
    // of floats, since libtorch's own gives -inf for halves
    const at::Tensor logs = plain.to(at::kFloat).log_softmax(1).to(at::kHalf);
    const at::Tensor got = x.log_softmax(1);
    EXPECT_EQ(difference(full_tensor(got), logs, 1e-3), "");
    const auto back = [](const at::Tensor& gradient, const at::Tensor& output) {
      return at::_log_softmax_backward_data(gradient, output, 1, at::kHalf);
    };
    const at::Tensor want =
        at::_log_softmax_backward_data(grad.to(at::kFloat), logs.to(at::kFloat), 1, at::kFloat);
    EXPECT_TRUE(at::allclose(full_tensor(back(g, got)).to(at::kFloat), want, 0, 1e-2));
  });
}

TEST(Halves, TheLossOfManyRowsIsTheirMean) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor rows = at::full({9000, 4}, -10, at::kHalf);
    const at::Tensor classes = at::zeros({9000}, at::kLong);
    const at::Tensor x = distribute_tensor(rows, mesh, {Shard(0)});
    const at::Tensor target = distribute_tensor(classes, mesh, {Shard(0)});
    EXPECT_EQ(full_tensor(at::nll_loss(x, target)).item<double>(), 10);
  });
}

// Parts of the ranks are more than a half can hold, their sum is not.
TEST(Halves, SumsOverACutDimAreRoundedOnce) {
  const at::Tensor row = at::tensor({35000., 35000., -35000., -35000.}).to(at::kHalf);
  const at::Tensor ones = at::ones({4}, at::kHalf);
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const auto placed = [&](const at::Tensor& tensor, std::int64_t dim) {
      return distribute_tensor(tensor.contiguous(), mesh, {Shard(dim)});
    };
    const at::Tensor x = placed(row.expand({3, 4}), 1);
    const at::Tensor y = placed(ones.view({4, 1}).expand({4, 2}), 0);
    const at::Tensor bias = distribute_tensor(at::ones({2}, at::kHalf), mesh, {Replicate()});
    const auto is_all = [](const at::Tensor& result, double value) {
      const at::Tensor whole = full_tensor(result);
      return whole.scalar_type() == at::kHalf && whole.eq(value).all().item<bool>();
    };
    EXPECT_TRUE(is_all(x.sum(), 0));
    EXPECT_TRUE(is_all(x.sum(1), 0));
    EXPECT_TRUE(is_all(x.nansum(1), 0));
    EXPECT_TRUE(is_all(at::mm(x, y), 0));
    EXPECT_TRUE(is_all(at::addmm(bias, x, y), 1));
    EXPECT_TRUE(is_all(at::linear(x, y.t(), bias), 1));
    EXPECT_TRUE(is_all(at::bmm(x.unsqueeze(0), y.unsqueeze(0)), 0));
    EXPECT_TRUE(is_all(at::dot(placed(row, 0), placed(ones, 0)), 0));
    EXPECT_TRUE(is_all(at::mv(x, placed(ones, 0)), 0));
    at::Tensor out = distribute_tensor(at::zeros({3, 2}, at::kHalf), mesh, {Shard(0)});
    EXPECT_TRUE(is_all(at::mm_out(out, x, y), 0));
  });
}

}  // namespace half_test
}  // namespace tegula
