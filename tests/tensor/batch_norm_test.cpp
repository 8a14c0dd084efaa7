// Batch norm where the batch, space or the channels are cut: as on one rank, by totals alone.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace batch_norm_test {

// Image, weight, bias, running mean and variance.
Tensors inputs_of(at::IntArrayRef shape) {
  const std::int64_t channels = shape[1];
  return {leaf(shape, 1), leaf({channels}, 2), leaf({channels}, 3), numbers({channels}, 4),
          numbers({channels}, 5).abs() + 0.5};
}

enum class Mode { Training, Fixed };

Program norm(Mode mode) {
  return [mode](const Tensors& in) -> Tensors {
    const at::Tensor mean = in[3].clone();
    const at::Tensor variance = in[4].clone();
    const at::Tensor out = at::batch_norm(in[0], in[1], in[2], mean, variance,
                                          mode == Mode::Training, 0.3, 1e-5, false);
    return {out, mean, variance};
  };
}

TEST(BatchNorm, GivesWhatOneRankGives) {
  for (const Mode mode : {Mode::Training, Mode::Fixed}) {
    for (const Shape& shape : {Shape{5, 3, 4, 2}, Shape{7, 4}, Shape{2, 5, 6}}) {
      expect_as_plain(inputs_of(shape), norm(mode));
    }
  }
}

TEST(BatchNorm, WithoutParametersGivesWhatOneRankGives) {
  expect_as_plain({leaf({5, 3, 4})}, [](const Tensors& in) -> Tensors {
    return {at::batch_norm(in[0], {}, {}, {}, {}, true, 0.1, 1e-5, false)};
  });
}

TEST(BatchNorm, EveryFormGivesWhatOneRankGives) {
  const auto given = [](const at::Tensor& tensor) { return std::optional<at::Tensor>(tensor); };
  const Program forms[] = {
      [&](const Tensors& in) -> Tensors {
        at::Tensor mean = in[3].clone();
        at::Tensor variance = in[4].clone();
        auto out = at::_native_batch_norm_legit(in[0], given(in[1]), given(in[2]), mean, variance,
                                                true, 0.3, 1e-5);
        return {std::get<0>(out), std::get<1>(out), std::get<2>(out), mean, variance};
      },
      [&](const Tensors& in) -> Tensors {
        auto out = at::_native_batch_norm_legit(in[0], given(in[1]), given(in[2]), true, 0.3, 1e-5);
        return {std::get<0>(out), std::get<1>(out), std::get<2>(out)};
      },
      [&](const Tensors& in) -> Tensors {
        auto out = at::_native_batch_norm_legit_no_training(in[0], given(in[1]), given(in[2]),
                                                            in[3], in[4], 0.3, 1e-5);
        return {std::get<0>(out), std::get<1>(out)};
      },
      [&](const Tensors& in) -> Tensors {
        auto out = at::_native_batch_norm_legit_functional(in[0], given(in[1]), given(in[2]), in[3],
                                                           in[4], true, 0.3, 1e-5);
        return {std::get<0>(out), std::get<1>(out), std::get<3>(out), std::get<4>(out)};
      },
      [&](const Tensors& in) -> Tensors {
        at::Tensor mean = in[3].clone();
        at::Tensor variance = in[4].clone();
        auto out = at::_batch_norm_with_update(in[0], given(in[1]), given(in[2]), mean, variance,
                                               0.3, 1e-5);
        return {std::get<0>(out), std::get<1>(out), std::get<2>(out), std::get<3>(out), mean,
                variance};
      },
      [&](const Tensors& in) -> Tensors {
        auto out = at::_batch_norm_no_update(in[0], given(in[1]), given(in[2]), given(in[3]),
                                             given(in[4]), 0.3, 1e-5);
        return {std::get<0>(out), std::get<1>(out), std::get<3>(out)};
      },
  };
  AsPlain options;
  options.gradients = false;
  for (const Program& form : forms) expect_as_plain(inputs_of({5, 3, 4}), form, options);
}

TEST(BatchNorm, ChannelsLastStaySo) {
  const at::Tensor image =
      leaf({5, 3, 4, 2}).detach().contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  Tensors inputs = inputs_of({5, 3, 4, 2});
  inputs[0] = image;
  expect_as_plain(inputs, norm(Mode::Training));
  run_impatient(2, [&](World& world) {
    const at::Tensor x = distribute_tensor(image.detach(), usual_mesh(world), {Shard(0)});
    const at::Tensor out = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    EXPECT_TRUE(out.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

// Digits would cancel in a difference of squares.
TEST(BatchNorm, AMeanFarFromZeroCostsNoDigits) {
  const at::Tensor plain = (numbers({64, 2}) + 1e4).to(at::kFloat);
  const at::Tensor want =
      at::batch_norm(plain.to(at::kDouble), {}, {}, {}, {}, true, 0.1, 0, false);
  run_impatient(3, [&](World& world) {
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Shard(0)});
    const at::Tensor got = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 0, false);
    EXPECT_EQ(difference(full_tensor(got).to(at::kDouble), want, 2e-3), "");
  });
}

TEST(BatchNorm, HalvesAreAddedUpAsFloats) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor plain = (numbers({300, 2}) + 20).to(type);
    const at::Tensor weight = at::full({2}, 1.5f);
    const auto run = [](const at::Tensor& x, const at::Tensor& w) {
      return at::batch_norm(x, w, {}, {}, {}, true, 0.1, 1e-5, false);
    };
    const at::Tensor want = run(plain.to(at::kFloat), weight);
    run_impatient(2, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)});
      const at::Tensor w = distribute_tensor(weight, mesh, {Replicate()});
      for (const at::Tensor& got : {run(x, w), run(x, w.to(type))}) {
        EXPECT_EQ(got.scalar_type(), type);
        EXPECT_EQ(difference(full_tensor(got).to(at::kFloat), want, 3e-2), "");
      }
    });
  }
}

TEST(BatchNorm, TotalsAreAllThatTravels) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const Tensors plain = inputs_of({6, 4, 8, 8});
    Tensors in;
    for (const at::Tensor& one : plain) {
      const Placement placement = one.dim() == 4 ? Placement(Shard(0)) : Placement(Replicate());
      in.push_back(distribute_tensor(one.detach(), mesh, {placement}));
    }
    in[0].requires_grad_();
    in[1].requires_grad_();
    in[2].requires_grad_();
    CommLog log(world);
    const at::Tensor out = norm(Mode::Training)(in)[0];
    EXPECT_EQ(log.to_string(),
              "all-gather over a (2 ranks): 64 bytes, for aten::native_batch_norm");
    EXPECT_EQ(placements_of(out), Placements{Shard(0)});
    log.clear();
    out.backward(at::ones_like(out));
    EXPECT_EQ(log.to_string(),
              "all-reduce sum over a (2 ranks): 64 bytes, for aten::native_batch_norm_backward");
    EXPECT_EQ(placements_of(in[1].grad()), Placements{Replicate()});
    EXPECT_EQ(placements_of(in[0].grad()), Placements{Shard(0)});
    log.clear();
    const at::Tensor fixed = norm(Mode::Fixed)(in)[0];
    EXPECT_EQ(placements_of(fixed), Placements{Shard(0)});
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(BatchNorm, CutChannelsNeedNoExchange) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    Tensors in;
    for (const at::Tensor& one : inputs_of({2, 7, 5})) {
      const bool is_image = one.dim() == 3;
      in.push_back(distribute_tensor(one.detach(), mesh, {Shard(is_image ? 1 : 0)}));
    }
    for (std::size_t k = 0; k < 3; ++k) in[k].requires_grad_();
    const CommLog log(world);
    for (const Mode mode : {Mode::Training, Mode::Fixed}) {
      const at::Tensor out = norm(mode)(in)[0];
      EXPECT_EQ(placements_of(out), Placements{Shard(1)});
      out.backward(at::ones_like(out));
      EXPECT_EQ(placements_of(in[1].grad()), Placements{Shard(0)});
    }
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

}  // namespace batch_norm_test
}  // namespace tegula
