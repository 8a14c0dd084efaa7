// Plain tensors beside DTensors: small ones count as replicated, and a difference is noticed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/tegula.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace plain_operands_test {

at::Tensor cut(World& world, const at::Tensor& whole) {
  return distribute_tensor(whole, usual_mesh(world), {Shard(0)});
}

TEST(PlainOperand, ThatIsSmallCountsAsReplicated) {
  run_ranks(3, [](World& world) {
    const at::Tensor whole = at::arange(12, at::kDouble).reshape({6, 2});
    const at::Tensor x = cut(world, whole);
    for (int i = 0; i < 2; ++i) {  // the second call's decision is remembered
      EXPECT_TRUE(at::equal(full_tensor(x + at::full({1}, 5.0, at::kDouble)), whole + 5));
      const at::Tensor column = at::arange(6, at::kDouble).reshape({6, 1});
      EXPECT_TRUE(at::equal(full_tensor(x * column), whole * column));
      EXPECT_TRUE(at::equal(full_tensor(x.index_select(0, at::tensor({5, 0}))),
                            whole.index_select(0, at::tensor({5, 0}))));
      EXPECT_TRUE(
          at::equal(full_tensor(at::where(whole > 4, x, -x)), at::where(whole > 4, whole, -whole)));
    }
  });
}

TEST(PlainOperand, ThatIsSmallAndDiffersIsAnErrorOnAllRanksAtTheNextCommunication) {
  for (const bool is_known : {false, true}) {
    std::vector<std::string> texts(2);
    run_ranks(2, [&](World& world) {
      const at::Tensor x = cut(world, at::ones({4}));
      if (is_known) full_tensor(x + at::ones({4}));
      const at::Tensor sum = x + at::full({4}, world.rank());
      texts[static_cast<std::size_t>(world.rank())] = error_of([&] { full_tensor(sum); });
      world.recover();
    });
    for (const std::string& text : texts) {
      EXPECT_TRUE(contains(text, "ranks have different values")) << text;
      EXPECT_TRUE(contains(text, "a plain operand of aten::add.Tensor")) << text;
    }
  }
}

TEST(PlainOperand, ThatIsLargeNeedsTheGuardWhichLooksAtASample) {
  run_ranks(2, [](World& world) {
    const at::Tensor x = cut(world, at::ones({4000}));
    EXPECT_TRUE(
        contains(error_of([&] { x + at::ones({4000}); }), "a plain tensor that may differ"));
    const ImplicitReplication guard;
    full_tensor(x + at::ones({4000}));
    const at::Tensor sum = x + at::full({4000}, world.rank());
    EXPECT_TRUE(contains(error_of([&] { full_tensor(sum); }), "ranks have different values"));
    world.recover();
  });
}

TEST(PlainOperand, ThatIsWrittenNeedsTheGuard) {
  run_ranks(2, [](World& world) {
    const at::Tensor x = cut(world, at::ones({4}));
    at::Tensor plain = at::zeros({4});
    EXPECT_TRUE(contains(error_of([&] { plain.add_(x); }), "a plain tensor that may differ"));
    EXPECT_TRUE(at::equal(plain, at::zeros({4})));
  });
}

}  // namespace plain_operands_test
}  // namespace tegula
