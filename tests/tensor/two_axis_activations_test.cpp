// Activations of which one axis cuts the batch and another the sequence pass linear layers,
// products and changes of shape as they are.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace two_axis_activations_test {

// The program on x cut in both ways, in strict mode, and its gradients: same numbers as on plain
// tensors, same cuts in the result, no communication but for gradients of what is replicated.
void expect_cuts_kept(const Tensors& plain, const Program& program) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  run_impatient(4, [&](const World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"sp", 2}});
    for (const Placements& cut : {Placements{Shard(0), Shard(1)}, Placements{Shard(1), Shard(0)}}) {
      Tensors inputs;
      for (const at::Tensor& tensor : plain) {
        const bool is_activation = tensor.dim() > 2;
        inputs.push_back(distribute_tensor(tensor.detach(), mesh,
                                           is_activation ? cut : Placements(2, Replicate()))
                             .requires_grad_());
      }
      CommLog log(world);
      at::Tensor result;
      {
        const StrictMode strict;
        result = program(inputs).front();
      }
      if (!log.empty()) throw std::runtime_error("forward: " + log.to_string());
      if (placements_of(result) != cut) throw std::runtime_error(to_string(spec_of(result)));
      result.sin().sum().backward();
      for (const CommEntry& entry : log.entries()) {
        if (entry.op != "gradient of a leaf") throw std::runtime_error(to_string(entry));
      }
    }
  });
  expect_as_plain(plain, program);
}

TEST(TwoAxisActivations, PassLinearLayers) {
  for (const bool is_even : {true, false}) {
    const std::int64_t b = is_even ? 4 : 3;
    const std::int64_t s = is_even ? 6 : 5;
    expect_cuts_kept({leaf({b, s, 6}), leaf({5, 6}, 2), leaf({5}, 3)},
                     [](const Tensors& t) { return Tensors{at::linear(t[0], t[1], t[2])}; });
    expect_cuts_kept({leaf({b, s, 2, 6}), leaf({5, 6}, 2)},
                     [](const Tensors& t) { return Tensors{at::linear(t[0], t[1])}; });
  }
}

TEST(TwoAxisActivations, PassProducts) {
  expect_cuts_kept({leaf({3, 5, 6}), leaf({6, 5}, 2)},
                   [](const Tensors& t) { return Tensors{at::matmul(t[0], t[1])}; });
  expect_cuts_kept({leaf({3, 5, 2, 6}), leaf({3, 5, 6, 4}, 2)},
                   [](const Tensors& t) { return Tensors{at::matmul(t[0], t[1])}; });
  expect_cuts_kept({leaf({3, 5, 6}), leaf({4, 6}, 2)}, [](const Tensors& t) {
    return Tensors{at::einsum("bsd,ed->bse", {t[0], t[1]})};
  });
}

TEST(TwoAxisActivations, PassChangesOfShapeAndBack) {
  expect_cuts_kept({leaf({3, 5, 6})}, [](const Tensors& t) {
    return Tensors{t[0].view({-1, 6}).exp().view({3, 5, 2, 3})};
  });
  expect_cuts_kept({leaf({4, 6, 5})}, [](const Tensors& t) {
    return Tensors{t[0].flatten(0, 1).relu().unflatten(0, {4, 6})};
  });
  expect_cuts_kept({leaf({3, 5, 6})}, [](const Tensors& t) {
    return Tensors{t[0].reshape({-1}).sin().reshape({3, 5, 6})};
  });
}

}  // namespace two_axis_activations_test
}  // namespace tegula
