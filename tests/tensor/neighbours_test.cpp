// Ghost cells around tiles, and rows that go from rank to rank.
#include "tegula/tensor/neighbours.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/spec/slices.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace neighbours_test {

// The tensor with ghost cells all around, by libtorch.
at::Tensor continued_by(const at::Tensor& plain, const HaloWidth& width, Boundary boundary) {
  const std::vector<std::int64_t> pads{width.before, width.after, width.before, width.after};
  const at::Tensor image = plain.unsqueeze(0);
  switch (boundary) {
    case Boundary::Zeros:
      return at::constant_pad_nd(plain, pads);
    case Boundary::Clipped:
      return plain;
    case Boundary::Periodic:
      return at::_pad_circular(image, pads).squeeze(0);
    case Boundary::Reflect:
      return at::reflection_pad2d(image, pads).squeeze(0);
    case Boundary::Nearest:
      return at::replication_pad2d(image, pads).squeeze(0);
  }
  return plain;
}

// This rank's tile in it, with its ghost cells.
at::Tensor tile_in(at::Tensor padded, const at::Tensor& x, const HaloWidth& width,
                   Boundary boundary, const World& world) {
  const TensorSlice slice = slice_at(spec_of(x), *mesh_of(x).coordinate_of(world.rank()));
  for (std::int64_t dim = 0; dim < 2; ++dim) {
    const Interval own = slice[static_cast<std::size_t>(dim)].front();
    std::int64_t begin = own.begin, end = own.end() + width.before + width.after;
    if (boundary == Boundary::Clipped) {
      begin = std::max<std::int64_t>(own.begin - width.before, 0);
      end = std::min(own.end() + width.after, x.size(dim));
    }
    padded = padded.slice(dim, begin, end);
  }
  return padded;
}

void check_halo(const World& world, const Placements& placements, const HaloWidth& width,
                Boundary boundary) {
  const at::Tensor plain = leaf({5, 6});
  const at::Tensor x = distribute_tensor(plain.detach(), usual_mesh(world), placements);
  x.set_requires_grad(true);
  const at::Tensor got = halo(x, {0, -1}, {width, width}, boundary);
  const at::Tensor want = tile_in(continued_by(plain, width, boundary), x, width, boundary, world);
  ASSERT_FALSE(is_dtensor(got));
  EXPECT_EQ(difference(got, want), "");

  // a scalar of all ranks' ghost cells: its gradient is the sum of what the ranks see
  const at::Tensor weights = numbers(got.sizes(), 5);
  (got * weights).sum().backward();
  (want * weights).sum().backward();
  const bool counts_once = std::none_of(placements.begin(), placements.end(), is_replicate);
  at::Tensor total = plain.grad().defined() ? plain.grad() : at::zeros_like(plain);
  if (counts_once) {
    total = world.group().all_reduce(total, ReduceOp::Sum);
    EXPECT_EQ(difference(full_tensor(x.grad()), total), "");
  }
}

TEST(Halo, IsWhatLiesAroundTheTile) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      std::vector<Placements> ways{{Shard(0)}, {Shard(1)}};
      if (ranks == 3) ways.push_back({Shard(0, Cut::ragged({0, 4, 1}))});
      if (ranks == 4) ways = {{Shard(0), Shard(1)}, {Shard(1), Shard(1)}, {Replicate(), Shard(0)}};
      for (const Placements& placements : ways) {
        for (const Boundary boundary : {Boundary::Zeros, Boundary::Clipped, Boundary::Periodic,
                                        Boundary::Reflect, Boundary::Nearest}) {
          for (const HaloWidth& width : {HaloWidth{1, 1}, HaloWidth{0, 3}, HaloWidth{4, 2}}) {
            check_halo(world, placements, width, boundary);
          }
        }
      }
    });
  }
}

TEST(Halo, PaysWhatIsOwedAndCanBeDifferentiatedTwice) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  run_impatient(4, [](World& world) {
    const at::Tensor plain = leaf({4});
    const at::Tensor x = from_local(plain.detach(), usual_mesh(world), {Partial(), Shard(0)});
    EXPECT_EQ(difference(halo(x, {0}, {{2, 0}}, Boundary::Zeros).slice(0, 2), to_local(x) * 2), "");
    const at::Tensor y =
        distribute_tensor(plain.detach(), usual_mesh(world), {Replicate(), Shard(0)});
    y.set_requires_grad(true);
    CommLog log(world);
    const at::Tensor cubes = halo(y, {0}, {{1, 1}}, Boundary::Periodic).pow(3).sum();
    EXPECT_EQ(log.bytes(), 2 * 8) << log.to_string();
    EXPECT_EQ(log.entries().front().op, "halo");
    const at::Tensor once = torch::autograd::grad({cubes}, {y}, {}, true, true)[0];
    const at::Tensor twice = torch::autograd::grad({once.sum()}, {y})[0];
    // each border element is seen by both ranks
    EXPECT_EQ(difference(full_tensor(twice), plain.detach() * 12), "");
  });
}

TEST(Halo, SaysWhatIsWrong) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({4, 4}), usual_mesh(world), {Shard(0)});
    EXPECT_TRUE(contains(error_of([&] { halo(numbers({4}), {0}, {{1, 1}}, Boundary::Zeros); }),
                         "halo needs a DTensor"));
    EXPECT_TRUE(contains(error_of([&] { halo(x, {0, -2}, {{1, 1}, {1, 1}}, Boundary::Zeros); }),
                         "halo needs different dims of the tensor"));
    EXPECT_TRUE(contains(error_of([&] { halo(x, {0}, {{1, -1}}, Boundary::Zeros); }),
                         "two widths for each"));
    constexpr std::int64_t kHuge = std::int64_t{1} << 62;
    EXPECT_TRUE(contains(error_of([&] { halo(x, {0}, {{kHuge, kHuge}}, Boundary::Zeros); }),
                         "two widths for each"));
    EXPECT_TRUE(contains(error_of([&] { halo(x, {0}, {{4, 0}}, Boundary::Reflect); }),
                         "too small for ghost cells of this kind"));
    const at::Tensor blocks = redistribute(x, {Shard(0, Cut::in_blocks(2))});
    EXPECT_TRUE(contains(error_of([&] { halo(blocks, {0}, {{1, 0}}, Boundary::Zeros); }),
                         "halo needs tiles that are one run of cells"));
    const DeviceMesh one = world.mesh(DeviceMesh({{"x", 1}}, {0}));
    const at::Tensor elsewhere = distribute_tensor(numbers({4}), one, {Shard(0)});
    const std::string text = error_of([&] { halo(elsewhere, {0}, {{1, 1}}, Boundary::Zeros); });
    EXPECT_EQ(contains(text, "halo is for the ranks of the mesh"), world.rank() == 1) << text;
  });
}

// Rank r sends its row k to rank (r + k) % ranks, row 0 twice.
TEST(Exchange, BringsTheListedRowsAndTakesGradientsBack) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const auto rank = static_cast<std::int64_t>(world.rank());
      const at::Tensor rows =
          (numbers({ranks, 2}) + 100.0 * static_cast<double>(rank)).set_requires_grad(true);
      std::vector<at::Tensor> lists(static_cast<std::size_t>(ranks));
      for (std::int64_t k = 0; k < ranks; ++k) {
        lists[static_cast<std::size_t>((rank + k) % ranks)] =
            k == 0 ? at::tensor({0, 0}, at::kLong) : at::tensor({k}, at::kLong);
      }
      const Arrived arrived = exchange(rows, world.group(), lists);
      std::vector<at::Tensor> want;
      for (std::int64_t from = 0; from < ranks; ++from) {
        const std::int64_t k = (rank - from + ranks) % ranks;
        const at::Tensor row = numbers({ranks, 2})[k] + 100.0 * static_cast<double>(from);
        want.push_back(row);
        if (k == 0) want.push_back(row);
        EXPECT_EQ(arrived.counts[static_cast<std::size_t>(from)], k == 0 ? 2 : 1);
      }
      EXPECT_EQ(difference(arrived.rows, at::stack(want)), "");
      (arrived.rows * static_cast<double>(rank + 1)).sum().backward();
      for (std::int64_t k = 0; k < ranks; ++k) {
        const auto by = static_cast<double>((rank + k) % ranks + 1) * (k == 0 ? 2 : 1);
        EXPECT_EQ(difference(rows.grad()[k], at::full({2}, by, at::kDouble)), "");
      }
    });
  }
}

TEST(Exchange, OfADTensorIsAmongTheRanksThatCutItsRows) {
  run_impatient(4, [](World& world) {
    const at::Tensor x =
        distribute_tensor(numbers({5, 3}), usual_mesh(world), {Replicate(), Shard(0)});
    x.set_requires_grad(true);
    const bool is_first = world.rank() % 2 == 0;
    // the first of both sends its last row, the second nothing
    const std::vector<at::Tensor> lists{{}, is_first ? at::tensor({2}, at::kLong) : at::Tensor()};
    const Arrived arrived = exchange(x, lists);
    EXPECT_EQ(arrived.rows.size(0), is_first ? 0 : 1);
    if (!is_first) {
      EXPECT_EQ(difference(arrived.rows[0], numbers({5, 3})[2]), "");
    }
    arrived.rows.sum().backward();
    const at::Tensor want = at::zeros({5, 3}, at::kDouble);
    want[2].fill_(1);
    EXPECT_EQ(difference(full_tensor(x.grad()), want), "");
  });
}

TEST(Exchange, SaysWhatIsWrong) {
  run_impatient(2, [](World& world) {
    const Group group = world.group();
    const at::Tensor rows = numbers({3, 2});
    const at::Tensor list = at::tensor({0}, at::kLong);
    for (const std::vector<at::Tensor>& lists :
         std::vector<std::vector<at::Tensor>>{{list},
                                              {list, list.to(at::kInt)},
                                              {list, at::tensor({3}, at::kLong)},
                                              {list, at::tensor({-1}, at::kLong)},
                                              {list, list.unsqueeze(0)}}) {
      EXPECT_TRUE(contains(error_of([&] { exchange(rows, group, lists); }),
                           "exchange needs a list of rows for each rank of the group"));
    }
    const at::Tensor x = distribute_tensor(rows, usual_mesh(world), {Shard(1)});
    EXPECT_TRUE(contains(error_of([&] { exchange(x, group, {list, list}); }),
                         "exchange sends rows of a plain tensor"));
    EXPECT_TRUE(contains(error_of([&] { exchange(x, {list, list}); }),
                         "exchange needs a tensor whose dim 0 is cut"));
    EXPECT_TRUE(
        contains(error_of([&] { exchange(rows, {list, list}); }), "exchange needs a DTensor"));
  });
}

}  // namespace neighbours_test
}  // namespace tegula
