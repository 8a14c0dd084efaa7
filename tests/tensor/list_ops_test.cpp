// Operators over lists of tensors, in the forms that few programs call by name.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <limits>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace list_ops_test {

// Calls body on 1 to 4 ranks, with a list of a tensor that is cut and one that is not.
void on_lists(const std::function<void(const Tensors& lists, const Tensors& plain)>& body) {
  const Tensors plain{numbers({5, 7}, 1), numbers({6}, 2)};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"a", ranks}});
      for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1))}) {
        const Tensors placed{distribute_tensor(plain[0], mesh, {placement}),
                             distribute_tensor(plain[1], mesh, {Replicate()})};
        const CommLog log(world);
        body(placed, plain);
        for (const CommEntry& entry : log.entries()) {
          EXPECT_NE(entry.op.substr(0, 6), "aten::") << to_string(entry);
        }
      }
    });
  }
}

void expect_alike(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    EXPECT_EQ(difference(full_tensor(got[k]), want[k]), "") << k;
  }
}

Tensors zeros_like_each(const Tensors& list) {
  Tensors zeros;
  for (const at::Tensor& member : list) zeros.push_back(at::zeros_like(member));
  return zeros;
}

TEST(ListOps, GivenTensorsTakeTheResultsWhereTheyAre) {
  on_lists([](const Tensors& list, const Tensors& plain) {
    Tensors out = zeros_like_each(list);
    at::_foreach_exp_out(out, list);
    expect_alike(out, at::_foreach_exp(plain));
    at::_foreach_add_out(out, list, list, 2);
    expect_alike(out, at::_foreach_add(plain, plain, 2));
    at::_foreach_mul_out(out, list, 3);
    expect_alike(out, at::_foreach_mul(plain, 3));
  });
}

TEST(ListOps, BoundsMayBeLists) {
  on_lists([](const Tensors& list, const Tensors& plain) {
    const Tensors bounds = zeros_like_each(list);
    expect_alike(at::_foreach_clamp_min(list, bounds),
                 at::_foreach_clamp_min(plain, zeros_like_each(plain)));
  });
}

TEST(ListOps, CopiesStayWhereTheyAre) {
  const auto clone = c10::Dispatcher::singleton().findSchema({"aten::_foreach_clone", ""});
  if (!clone) GTEST_SKIP() << "this libtorch has no _foreach_clone: 2.7 was the first with it";
  on_lists([&](const Tensors& list, const Tensors& plain) {
    torch::jit::Stack stack = {c10::IValue(list)};
    stack.resize(clone->schema().arguments().size());  // a memory format, where there is one
    clone->callBoxed(stack);
    expect_alike(stack.at(0).toTensorVector(), plain);
  });
}

TEST(ListOps, AnOptimizerStepOnCopiesLeavesItsOperands) {
  on_lists([](const Tensors& list, const Tensors& plain) {
    const auto step = [](const Tensors& parameters) {
      return at::_fused_sgd(parameters, parameters, {}, 0.01, 0.0, 0.1, 0.0, false, false, false);
    };
    expect_alike(std::get<0>(step(list)), std::get<0>(step(plain)));
    expect_alike(list, plain);
  });
}

TEST(ListOps, ANumberMayBeRaisedToEachMember) {
  on_lists([](const Tensors& list, const Tensors& plain) {
    expect_alike(at::_foreach_pow(2, list), at::_foreach_pow(2, plain));
  });
}

TEST(ListOps, NumbersPerMemberMayBeATensor) {
  on_lists([](const Tensors& list, const Tensors& plain) {
    const at::Tensor scalars = at::tensor({0.5, 2.0}, at::kDouble);
    expect_alike(at::_foreach_addcmul(list, list, list, scalars),
                 at::_foreach_addcmul(plain, plain, plain, scalars));
    Tensors ours = at::_foreach_mul(list, 1), theirs = at::_foreach_mul(plain, 1);
    at::_foreach_addcdiv_(ours, list, list, scalars);
    at::_foreach_addcdiv_(theirs, plain, plain, scalars);
    expect_alike(ours, theirs);
  });
}

// What a gradient scaler does: no rank may go on where another found an infinity.
TEST(ListOps, GradientsAreUnscaledInTilesAndAllRanksAgreeOnWhatIsNotFinite) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    for (const bool is_finite : {true, false}) {
      at::Tensor first = numbers({5, 7}, 1).to(at::kFloat);
      if (!is_finite) first[4][6] = std::numeric_limits<float>::infinity();
      const Tensors plain{first, numbers({6}, 2).to(at::kFloat)};
      const Tensors ours{distribute_tensor(first, mesh, {Shard(0), Shard(1)}),
                         distribute_tensor(plain[1], mesh["tp"], {Shard(0)})};
      const at::Tensor inverse = at::full({1}, 0.25F);
      at::Tensor found = at::zeros({1});
      const ImplicitReplication alike;  // it is written
      const CommLog log(world);
      at::_amp_foreach_non_finite_check_and_unscale_(ours, found, inverse);
      EXPECT_LE(log.bytes(), 8) << log.to_string();
      EXPECT_EQ(found.item<float>(), is_finite ? 0 : 1);
      EXPECT_EQ(difference(full_tensor(ours[1]), plain[1] * 0.25), "");
      if (is_finite) {
        EXPECT_EQ(difference(full_tensor(ours[0]), first * 0.25), "");
      }
    }
  });
}

}  // namespace list_ops_test
}  // namespace tegula
