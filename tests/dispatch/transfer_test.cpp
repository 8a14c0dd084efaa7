#include "tegula/redistribute/transfer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/comm/comm_log.h"
#include "tests/dispatch/distributions.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace transfer_test {

struct Case {
  DTensorSpec from;
  DTensorSpec to;
};

// Every spec of one mesh with every spec of another, one pair in `step`, for several shapes.
std::vector<Case> pairs(const DeviceMesh& from, const DeviceMesh& to, std::size_t step) {
  std::vector<Case> cases;
  std::size_t count = 0;
  for (const Shape& shape : std::vector<Shape>{{5, 3}, {8, 4}, {1, 4}, {0, 3}, {7}, {}}) {
    const TensorMeta meta(shape, DType::F32);
    for (const DTensorSpec& a : all_specs(from, meta)) {
      for (const DTensorSpec& b : all_specs(to, meta)) {
        if (count++ % step == 0) cases.push_back({a, b});
      }
    }
  }
  return cases;
}

// All fibers of `from` start with the same tiles; every fiber of `to` must end with the right ones.
void check(int ranks, const std::vector<Case>& cases) {
  std::vector<std::vector<at::Tensor>> tiles;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    tiles.push_back(tiles_of(cases[i].from, static_cast<std::int64_t>(i)));
  }
  std::vector<std::vector<at::Tensor>> results(
      cases.size(), std::vector<at::Tensor>(static_cast<std::size_t>(ranks)));
  run_ranks(ranks, [&](World& world) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const DeviceMesh& mesh = cases[i].from.mesh();
      const bool holds_one = mesh.coordinate_of(world.rank()).has_value();
      const at::Tensor tile = holds_one ? tiles[i][place_of(mesh, world.rank())] : at::empty({0});
      results[i][static_cast<std::size_t>(world.rank())] =
          transfer(world, tile, cases[i].from, cases[i].to);
    }
  });
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [from, to] = cases[i];
    const at::Tensor whole = join_tiles(tiles[i], from);
    for (std::int64_t fiber = 0; fiber < to.mesh().fiber_count(); ++fiber) {
      std::vector<at::Tensor> moved;
      for (std::int64_t rank : to.mesh().ranks(fiber)) {
        moved.push_back(results[i][static_cast<std::size_t>(rank)]);
      }
      expect_tiles(moved, whole, to, specs_text(from, to));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (to.mesh().coordinate_of(rank)) continue;
      EXPECT_EQ(results[i][static_cast<std::size_t>(rank)].sizes().vec(), Shape{0});
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(TransferLaw, TheSameRanksInAnotherShape) {
  check(4, pairs(DeviceMesh({{"a", 4}}), DeviceMesh({{"x", 2}, {"y", 2}}), 7));
  check(4, pairs(DeviceMesh({{"x", 2}, {"y", 2}}), DeviceMesh({{"a", 4}}, {2, 0, 3, 1}), 11));
}

TEST(TransferLaw, OverlappingRanks) {
  check(5, pairs(DeviceMesh({{"a", 3}}), DeviceMesh({{"b", 3}}, {4, 2, 1}), 2));
  check(4, pairs(DeviceMesh({{"a", 2}}), DeviceMesh({{"x", 2}, {"y", 2}}), 7));
}

TEST(TransferLaw, OtherRanks) {
  check(5, pairs(DeviceMesh({{"a", 2}}), DeviceMesh({{"b", 2}}, {3, 4}), 2));
  check(5, pairs(DeviceMesh({{"x", 2}, {"y", 2}}), DeviceMesh({{"b", 1}}, {4}), 5));
}

TEST(TransferLaw, MeshesOfSeveralFibers) {
  const DeviceMesh root({{"dp", 2}, {"tp", 2}});
  check(4, pairs(root["tp"], root["dp"], 3));
  check(4, pairs(root["tp"], root, 17));
  check(4, pairs(root, root["tp"], 17));
  check(6, pairs(root["tp"], DeviceMesh({{"b", 2}}, {4, 5}), 3));
  check(6, pairs(DeviceMesh({{"b", 2}}, {4, 5}), root["dp"], 3));
}

TEST(Transfer, AFiberReceivesFromItself) {
  run_ranks(4, [](World& world) {
    const DeviceMesh root = world.mesh({{"dp", 2}, {"tp", 2}});
    const DeviceMesh renamed = root["tp"].unflatten("tp", {{"x", 2}, {"y", 1}});
    const TensorMeta meta({2}, DType::I64);
    const at::Tensor tile = at::full({1}, world.rank(), at::kLong);
    const at::Tensor whole = transfer(world, tile, {root["tp"], {Shard(0)}, meta},
                                      {renamed, {Replicate(), Replicate()}, meta});
    const std::int64_t first = world.rank() / 2 * 2;
    EXPECT_TRUE(at::equal(whole, at::tensor({first, first + 1}, at::kLong)));
  });
}

TEST(Transfer, OnOneMeshItIsARedistribution) {
  check(2, pairs(DeviceMesh({{"a", 2}}), DeviceMesh({{"a", 2}}), 3));
}

TEST(Transfer, NothingIsSentIfEveryRankHasWhatItNeeds) {
  run_ranks(2, [](World& world) {
    const DTensorSpec from = parse_spec("f32[4] on (a=2) as [R]");
    const DTensorSpec to = parse_spec("f32[4] on (b=2) as [S(0)]");
    if (world.rank() == 1) return;  // rank 0 does not miss it
    EXPECT_TRUE(at::equal(transfer(world, at::arange(4.F), from, to), at::arange(2.F)));
  });
}

TEST(Transfer, BetweenMeshesOfTheSameAxesIsPlanned) {
  const TensorMeta meta({8}, DType::F32);
  const DTensorSpec from(DeviceMesh({{"a", 4}}), {Shard(0)}, meta);
  const DTensorSpec to(DeviceMesh({{"x", 2}, {"y", 2}}), {Shard(0), Replicate()}, meta);
  run_ranks(4, [&](World& world) {
    const CommLog log(world);
    const at::Tensor moved =
        transfer(world, at::full({2}, world.rank(), at::TensorOptions(at::kFloat)), from, to);
    EXPECT_EQ(moved[0].item<int>(), world.rank() / 2 * 2);
    const std::vector<CommEntry> sent = log.entries();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].kind, comm::Kind::AllGather);
    EXPECT_EQ(sent[0].axis, "y");
  });
}

TEST(Transfer, AWireTypeRoundsTheSameOnAllRanks) {
  run_ranks(2, [](World& world) {
    const DTensorSpec from = parse_spec("f32[2] on (a=2) as [S(0)]");
    const DTensorSpec to = parse_spec("f32[2] on (b=2) as [R]");
    const at::Tensor whole = at::tensor({1.0001F, 3.0003F});
    const at::Tensor tile = cut_tile(whole, from, {world.rank()});
    EXPECT_TRUE(at::equal(transfer(world, tile, from, to, {at::kHalf}),
                          whole.to(at::kHalf).to(at::kFloat)));
    EXPECT_THROW(transfer(world, tile, from, to, {at::kInt}), UsageError);
  });
}

TEST(Transfer, RanksOfNeitherMeshTakeNoPart) {
  run_ranks(3, [](World& world) {
    const DTensorSpec from = parse_spec("f32[4] on (a=1) as [R]");
    const DTensorSpec to = parse_spec("f32[4] on (a=1) over [1] as [R]");
    const at::Tensor tile = world.rank() == 0 ? at::ones({4}) : at::Tensor();
    EXPECT_EQ(transfer(world, tile, from, to).numel(), world.rank() == 1 ? 4 : 0);
  });
}

TEST(Transfer, ADifferentTensorIsRefused) {
  const World world = World::alone();
  const DTensorSpec spec = parse_spec("f32[4] on (a=1) as [R]");
  EXPECT_THROW(transfer(world, at::ones({4}), spec, parse_spec("f32[5] on (b=1) as [R]")),
               UsageError);
  EXPECT_THROW(transfer(world, at::ones({5}), spec, parse_spec("f32[4] on (b=1) as [R]")),
               UsageError);
  try {
    transfer(world, at::ones({4}), spec, parse_spec("f64[4] on (b=1) as [R]"));
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: a transfer cannot change the shape or element type of a tensor\n"
                 "  from    f32[4] on (a=1) as [R]\n"
                 "  to      f64[4] on (b=1) as [R]\n"
                 "  hint    give two specs with one shape and element type");
  }
}

TEST(Scatter, AnyRanksTensorReachesTheWholeMesh) {
  for (int source : {0, 3, 4}) {
    for (const char* as : {"[R, R]", "[S(0), S(1)]", "[S(0)[1], S(0)[0]]", "[P(sum), S(1)]"}) {
      const DTensorSpec to =
          parse_spec("f32[5, 3] strides [1, 5] on (a=2, b=2) as " + std::string(as));
      const at::Tensor whole = numbers({5, 3}, at::kFloat, 1);
      std::vector<at::Tensor> tiles(5);
      run_ranks(5, [&](World& world) {
        tiles[static_cast<std::size_t>(world.rank())] =
            scatter_from(world, world.rank() == source ? whole : at::Tensor(), source, to);
      });
      EXPECT_EQ(tiles.back().numel(), 0);
      tiles.pop_back();
      expect_tiles(tiles, whole, to, as);
    }
  }
}

}  // namespace transfer_test
}  // namespace tegula::inner
