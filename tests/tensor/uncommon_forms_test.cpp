// Forms of operators that few programs call by name: they are what plain tensors give, and where
// data stays, it stays.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace uncommon_forms_test {

TEST(UncommonForms, ElementsAreFoundAmongOthers) {
  const at::Tensor some = (numbers({5, 4}) * 4).to(at::kLong), others = at::tensor({1, 2, 3});
  expect_as_plain({some, others}, [](const Tensors& in) -> Tensors {
    return {at::isin(in[0], in[1]), at::isin(in[0], in[1], false, true), at::isin(in[0], 2),
            at::isin(2, in[1]), at::isin(7, in[1], false, true)};
  });
}

TEST(UncommonForms, EmptyVectorsAreJoinedToAnything) {
  expect_as_plain({leaf({5, 4}), numbers({0}), leaf({3, 4}, 2)}, [](const Tensors& in) -> Tensors {
    return {at::cat({in[1], in[0], in[2]}, 0), at::cat({in[0], in[1]}, 1)};
  });
}

TEST(UncommonForms, DiagonalsAreFilled) {
  for (const bool wrap : {false, true}) {
    expect_as_plain({numbers({7, 3}), numbers({3, 7}, 2)}, [&](const Tensors& in) -> Tensors {
      return {in[0].clone().fill_diagonal_(5, wrap), in[1].clone().fill_diagonal_(5, wrap)};
    });
  }
}

TEST(UncommonForms, ElementsUnderAMaskAreFoundWhateverDimIsCut) {
  expect_as_plain({numbers({4, 5}), numbers({4, 5}, 2).gt(0.5)},
                  [](const Tensors& in) -> Tensors {
                    return {at::masked_select(in[0], in[1]), at::nonzero(in[1]),
                            at::argwhere(in[1])};
                  },
                  {.partial = false});
}

TEST(UncommonForms, PoolingOfSequencesNeedsNoGradient) {
  expect_as_plain({numbers({3, 4, 9})}, [](const Tensors& in) -> Tensors {
    return {at::max_pool1d(in[0], {3}, {2}, {1})};
  });
}

TEST(UncommonForms, AProductMayEndInAnActivation) {
  expect_as_plain({numbers({5}), numbers({4, 6}, 2), numbers({6, 5}, 3)},
                  [](const Tensors& in) -> Tensors {
                    return {at::_addmm_activation(in[0], in[1], in[2]),
                            at::_addmm_activation(in[0], in[1], in[2], 1, 1, /*use_gelu=*/true)};
                  });
}

TEST(UncommonForms, WhatIsOnlyWrittenIsNotGathered) {
  run_impatient(3, [](World& world) {
    at::Tensor out = distribute_tensor(at::zeros({8}), usual_mesh(world), {Shard(0)});
    const CommLog log(world);
    at::arange_out(out, 8);
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_EQ(placements_of(out), (Placements{Shard(0)}));
    EXPECT_EQ(difference(full_tensor(out), at::arange(8, at::kFloat)), "");
  });
}

TEST(UncommonForms, WhatIsWrittenAndReadIsGatheredOnce) {
  run_impatient(2, [](World& world) {
    const at::Tensor plain = numbers({4, 4}) + at::eye(4, at::kDouble) * 4;
    const at::Tensor self = distribute_tensor(plain, usual_mesh(world), {Shard(0)});
    at::Tensor same = self;
    at::inverse_out(same, self);
    EXPECT_EQ(difference(full_tensor(self), at::inverse(plain)), "");
  });
}

}  // namespace uncommon_forms_test
}  // namespace tegula
