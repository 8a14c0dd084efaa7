// A tensor that owes a reduction and is read by several ops is reduced once, until it changes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace reduced_once_test {

// A product of cut factors: P(sum), its tile nobody else's.
struct Owing {
  explicit Owing(World& world)
      : mesh(world.mesh({{"tp", 2}})),
        left(distribute_tensor(numbers({4, 6}, 1), mesh, {Shard(1)})),
        right(distribute_tensor(numbers({6, 4}, 2), mesh, {Shard(0)})),
        tensor(at::mm(left, right)),
        plain(at::mm(numbers({4, 6}, 1), numbers({6, 4}, 2))) {}
  DeviceMesh mesh;
  at::Tensor left;
  at::Tensor right;
  at::Tensor tensor;
  at::Tensor plain;
};

void on_two_ranks(const std::function<void(World&, Owing&)>& body) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  run_impatient(2, [&](World& world) {
    Owing owing(world);
    body(world, owing);
  });
}

void expect_gelu(const Owing& owing) {
  EXPECT_EQ(difference(full_tensor(at::gelu(owing.tensor)), at::gelu(owing.plain)), "");
}

TEST(ReducedOnce, HoweverManyOpsReadIt) {
  on_two_ranks([](World& world, Owing& owing) {
    const CommLog log(world);
    for (int k = 0; k < 3; ++k) expect_gelu(owing);
    EXPECT_EQ(difference(full_tensor(at::exp(owing.tensor)), at::exp(owing.plain)), "");
    EXPECT_EQ(log.size(), 1U) << log.to_string();
  });
}

TEST(ReducedOnce, AlsoWhereItIsSavedForBackward) {
  on_two_ranks([](World& world, Owing& owing) {
    owing.left.set_requires_grad(true);
    const at::Tensor y = at::gelu(at::mm(owing.left, owing.right));
    const CommLog log(world);
    y.backward(at::ones_like(y));
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

// Each changes the tensor; what was remembered must not be used.
TEST(ReducedOnce, NotAcrossAWrite) {
  using Write = std::function<void(const at::Tensor&)>;
  const std::vector<std::pair<std::string, Write>> writes = {
      {"in place", [](const at::Tensor& x) { x.mul_(2); }},
      {"through a view", [](const at::Tensor& x) { x[1].mul_(2); }},
      {"through a view of a view", [](const at::Tensor& x) { x.t().select(1, 2).mul_(3); }},
      {"through data", [](const at::Tensor& x) { x.data().mul_(2); }},
      {"a fill", [](const at::Tensor& x) { x.fill_(2); }},
      {"zero_", [](const at::Tensor& x) { x.zero_(); }},
      {"copy_", [](const at::Tensor& x) { x.copy_(x * 3); }},
      {"out=",
       [](const at::Tensor& x) {
         at::Tensor out = x;
         at::mul_out(out, x, x);
       }},
      {"foreach", [](const at::Tensor& x) { at::_foreach_mul_({x}, 2); }},
      {"a masked write", [](const at::Tensor& x) { x.masked_fill_(at::ones_like(x).gt(0), 5); }},
  };
  for (const auto& [name, write] : writes) {
    on_two_ranks([&](World&, Owing& owing) {
      expect_gelu(owing);
      write(owing.tensor);
      write(owing.plain);
      EXPECT_EQ(difference(full_tensor(at::gelu(owing.tensor)), at::gelu(owing.plain)), "") << name;
    });
  }
}

TEST(ReducedOnce, AViewForgetsWhenItsBaseChanges) {
  on_two_ranks([](World&, Owing& owing) {
    const at::Tensor view = owing.tensor.t();
    EXPECT_EQ(difference(full_tensor(at::gelu(view)), at::gelu(owing.plain.t())), "");
    owing.tensor.mul_(2);
    owing.plain.mul_(2);
    EXPECT_EQ(difference(full_tensor(at::gelu(view)), at::gelu(owing.plain.t())), "");
  });
}

TEST(ReducedOnce, WritesOfAllRanksToTheirTilesAreSeen) {
  on_two_ranks([](World& world, Owing& owing) {
    expect_gelu(owing);
    to_local(owing.tensor).mul_(2);
    owing.plain.mul_(2);
    expect_gelu(owing);
    const at::Tensor tile = numbers({4}, 3 + static_cast<std::uint64_t>(world.rank()));
    const at::Tensor x = from_local(tile, owing.mesh, {Partial(ReduceOp::Sum)});
    const at::Tensor before = full_tensor(at::exp(x));
    tile.data().zero_();
    EXPECT_EQ(difference(full_tensor(at::exp(x)), at::ones({4}, at::kDouble)), "");
  });
}

TEST(ReducedOnce, OneRankMayLookAtItsTile) {
  on_two_ranks([](World& world, Owing& owing) {
    if (world.rank() == 0) to_local(owing.tensor).sum().item<double>();
    expect_gelu(owing);
    if (world.rank() == 1) to_local(owing.tensor).sum().item<double>();
    const CommLog log(world);
    const at::Tensor y = at::gelu(owing.tensor);
    EXPECT_TRUE(log.empty()) << log.to_string();
    expect_gelu(owing);
  });
}

TEST(ReducedOnce, AWriteInInferenceModeIsSeen) {
  on_two_ranks([](World&, Owing& owing) {
    const c10::InferenceMode inference;
    const at::Tensor x = at::mm(owing.left, owing.right);
    EXPECT_EQ(difference(full_tensor(at::gelu(x)), at::gelu(owing.plain)), "");
    x.mul_(2);
    EXPECT_EQ(difference(full_tensor(at::gelu(x)), at::gelu(owing.plain * 2)), "");
  });
}

TEST(ReducedOnce, ALargeTensorIsNotKeptTwice) {
  on_two_ranks([](World& world, Owing& owing) {
    const at::Tensor column = at::ones({4100, 1}, at::kDouble);
    const at::Tensor factor =
        distribute_tensor(column.expand({4100, 2}).contiguous(), owing.mesh, {Shard(1)});
    const at::Tensor large = at::mm(factor, factor.t());  // 128 MiB
    const CommLog log(world);
    at::relu(large);
    at::relu(large);
    EXPECT_EQ(log.size(), 2U) << log.to_string();
  });
}

// An RMS norm over a cut dim: the gradient of the mean owes a number per row, which libtorch
// expands to the whole before it divides. The numbers travel, not what they are expanded to.
TEST(ReducedOnce, BeforeItIsUsedWhereItWasExpanded) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  const auto normalized = [](const at::Tensor& x) {
    return x * (x.square().mean({1}, /*keepdim=*/true) + 1e-3).rsqrt();
  };
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 3}});
    constexpr std::int64_t kRows = 4;
    const at::Tensor whole = numbers({kRows, 301}, 1).requires_grad_();
    const at::Tensor cotangent = numbers({kRows, 301}, 2);
    normalized(whole).backward(cotangent);
    at::Tensor x = distribute_tensor(whole.detach(), mesh, {Shard(1)}).requires_grad_();
    const at::Tensor grad = distribute_tensor(cotangent, mesh, {Shard(1)});

    const CommLog log(world);
    normalized(x).backward(grad);

    EXPECT_LE(log.bytes(), 4 * kRows * static_cast<std::int64_t>(sizeof(double)))
        << log.to_string();
    EXPECT_EQ(difference(full_tensor(x.grad()), whole.grad()), "");
  });
}

// Of several expanded dims, cut over another axis, and where the op wants it cut along the
// expanded.
TEST(ReducedOnce, IsRightWhereItWasExpanded) {
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const at::Tensor left = numbers({5, 6}, 1), right = numbers({6, 1}, 2);
    const at::Tensor owed = at::mm(distribute_tensor(left, mesh, {Shard(0), Shard(1)}),
                                   distribute_tensor(right, mesh, {Replicate(), Shard(0)}));
    const at::Tensor sum = at::mm(left, right);
    const at::Tensor other = numbers({3, 5, 7}, 3);
    for (const Placements& placements :
         {Placements{Shard(1), Shard(2)}, Placements{Shard(0), Shard(2)},
          Placements{Replicate(), Shard(0)}, Placements{Replicate(), Replicate()}}) {
      const at::Tensor placed = distribute_tensor(other, mesh, placements);
      EXPECT_EQ(difference(full_tensor(owed.expand({3, 5, 7}).exp() * placed),
                           sum.expand({3, 5, 7}).exp() * other),
                "");
      EXPECT_EQ(
          difference(full_tensor(owed.expand({3, 5, 7}) * placed), sum.expand({3, 5, 7}) * other),
          "");
    }
  });
}

TEST(ReducedOnce, BeforeItMakesSomethingLarger) {
  on_two_ranks([](World& world, Owing& owing) {
    const at::Tensor wide = distribute_tensor(numbers({4, 40}, 5), owing.mesh, {Replicate()});
    const CommLog log(world);
    const at::Tensor product = at::mm(owing.tensor, wide);
    EXPECT_EQ(to_string(placements_of(product)), "[R]");
    EXPECT_EQ(log.bytes(), 16 * static_cast<std::int64_t>(sizeof(double))) << log.to_string();
    EXPECT_EQ(difference(full_tensor(product), at::mm(owing.plain, numbers({4, 40}, 5))), "");
  });
}

TEST(ReducedOnce, NotWhereItIsJoinedWithOthersThatOwe) {
  on_two_ranks([](World& world, Owing& owing) {
    const CommLog log(world);
    const at::Tensor joined = at::cat({owing.tensor, owing.tensor}, 1);
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_EQ(difference(full_tensor(joined), at::cat({owing.plain, owing.plain}, 1)), "");
  });
}

}  // namespace reduced_once_test
}  // namespace tegula
