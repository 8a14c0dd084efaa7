#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/comm/world.h"

namespace tegula {
namespace world_mesh_test {

TEST(WorldMesh, GroupsAlongAxesReduceAmongTheirOwnRanks) {
  run_ranks(6, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 3}});
    const at::Tensor mine = at::full({2}, world.rank(), at::kLong);
    const Coordinate at = mesh.coordinate_of(world.rank()).value();
    const at::Tensor along_dp = world.group(mesh, "dp").all_reduce(mine, ReduceOp::Sum);
    const at::Tensor along_tp = world.group(mesh, "tp").all_reduce(mine, ReduceOp::Sum);
    EXPECT_EQ(along_dp[0].item<std::int64_t>(), 2 * at[1] + 3);
    EXPECT_EQ(along_tp[0].item<std::int64_t>(), 9 * at[0] + 3);
    EXPECT_EQ(world.group(mesh["tp"], "tp").ranks(), world.group(mesh, "tp").ranks());
  });
}

TEST(WorldMesh, TheOrderOfListedRanksIsTheOrderOfTheGroup) {
  run_ranks(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"x", 3}}, {2, 0, 1});
    const Group group = world.group(mesh, "x");
    EXPECT_EQ(group.ranks(), (std::vector<int>{2, 0, 1}));
    const at::Tensor all = group.all_gather(at::full({1}, world.rank(), at::kLong), 0);
    EXPECT_TRUE(at::equal(all, at::tensor({2, 0, 1}, at::kLong)));
  });
}

TEST(WorldMesh, AnAxisMayAskForABackendAndATimeout) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"x", 2, {"gloo", {{"timeout", "20"}}}}});
    EXPECT_EQ(world.group(mesh, "x").engine(), "gloo");
    EXPECT_TRUE(at::equal(world.group(mesh, "x").all_reduce(at::ones({3}), ReduceOp::Sum),
                          at::full({3}, 2.F)));
  });
}

TEST(WorldMesh, AGroupIsTheSameForEqualMeshesAndByNameOrIndex) {
  run_ranks(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const Group group = world.group(mesh, "tp");
    const DeviceMesh equal({{"dp", 2}, {"tp", 2}});
    EXPECT_EQ(&world.group(mesh, 1).ranks(), &group.ranks());
    EXPECT_EQ(&world.group(equal, "tp").ranks(), &group.ranks());
    EXPECT_NE(&world.group(mesh, "dp").ranks(), &group.ranks());
    EXPECT_THROW(world.group(mesh, 2), UsageError);
  });
}

TEST(WorldMesh, GroupsOfMoreMeshesThanAreRememberedStayRight) {
  const World world = World::fake(8, 5);
  for (const bool again : {false, true}) {
    for (int mesh = 0; mesh < 600; ++mesh) {
      const std::string name = "axis" + std::to_string(mesh);
      const Group group = world.group(DeviceMesh({{"rest", 4}, {name, 2}}), name);
      EXPECT_EQ(group.ranks(), (std::vector<int>{4, 5})) << again;
      EXPECT_EQ(group.name().substr(0, name.size()), name);
    }
  }
}

TEST(WorldMesh, RememberedMeshesDoNotKeepTheirWorldAlive) {
  struct Witness {
    std::shared_ptr<int> held = std::make_shared<int>(0);
  };
  std::weak_ptr<int> witness;
  {
    const World world = World::alone();
    witness = world.part<Witness>().held;
    world.group(world.mesh({{"x", 1}}), "x");
  }
  EXPECT_TRUE(witness.expired());
}

TEST(WorldMesh, WhatTheWorldCannotServeIsRefused) {
  run_ranks(2, [](World& world) {
    EXPECT_THROW(world.mesh({{"x", 3}}), UsageError);
    EXPECT_THROW(world.mesh({{"x", 2}}, {0, 7}), UsageError);
    EXPECT_THROW(world.group(world.mesh({{"x", 2}}), "y"), UsageError);
    EXPECT_THROW(world.group(world.mesh({{"x", 2, {"carrier_pigeon", {}}}}), "x"), UsageError);
    for (const char* timeout : {"soon", "0", "-1", "1000000001", "9223372036854775807"}) {
      EXPECT_THROW(world.group(world.mesh({{"x", 2, {"shm", {{"timeout", timeout}}}}}), "x"),
                   UsageError);
    }
    EXPECT_THROW(world.group(world.mesh({{"x", 2, {"shm", {{"speed", "9"}}}}}), "x"), UsageError);
    if (world.rank() == 1) {
      EXPECT_THROW(world.group(world.mesh({{"x", 1}}), "x"), UsageError);
    }
  });
}

TEST(WorldMesh, AMeshOfADeviceThatIsNotThereIsRefused) {
  const World world = World::alone();
  for (const char* device : {"cuda", "xpu", "abacus"}) {
    if (std::string(device) == "cuda" && at::hasCUDA()) continue;
    try {
      world.mesh(DeviceMesh({{"x", 1}}, {}, device));
      FAIL() << device << " was taken";
    } catch (const UsageError& error) {
      EXPECT_EQ(error.sentence(), "this libtorch has no device \"" + std::string(device) + "\"");
    }
  }
  EXPECT_THROW(world.mesh(DeviceMesh({{"x", 1}}, {}, "meta")), UsageError);
  EXPECT_NO_THROW(world.mesh(DeviceMesh({{"x", 1}}, {}, "cpu")));
}

TEST(WorldMesh, CollectivesOfAnImaginedMeshOfMetaGiveShapes) {
  const World world = World::fake(6, 4);
  const DeviceMesh mesh = world.mesh(DeviceMesh({{"dp", 2}, {"tp", 3}}, {}, "meta"));
  const Group group = world.group(mesh, "tp");
  const at::Tensor x = at::empty({6, 4}, at::device(at::kMeta)).t();
  const auto is_meta = [](const at::Tensor& got, at::IntArrayRef shape) {
    return got.is_meta() && got.sizes() == shape;
  };
  EXPECT_TRUE(is_meta(group.all_reduce(x, ReduceOp::Sum), {4, 6}));
  EXPECT_TRUE(is_meta(group.all_gather(x, 0), {12, 6}));
  EXPECT_TRUE(is_meta(group.all_gather(x, 0, {1, 4, 2}), {7, 6}));
  EXPECT_TRUE(is_meta(group.reduce_scatter(x, 1, ReduceOp::Avg), {4, 2}));
  EXPECT_TRUE(is_meta(group.all_to_all(x, 1, 0), {12, 2}));
  EXPECT_TRUE(is_meta(group.broadcast(x, 1), {4, 6}));
  EXPECT_TRUE(is_meta(group.gather(x, 0, 1), {12, 6}));
  EXPECT_TRUE(is_meta(group.permute(x, {1, 2, 0}), {4, 6}));
  EXPECT_TRUE(is_meta(group.all_reduce_async(x, ReduceOp::Sum).wait(), {4, 6}));
  EXPECT_NO_THROW(group.all_reduce_(x, ReduceOp::Sum));
  EXPECT_NO_THROW(group.broadcast_(x, 0));
  EXPECT_NO_THROW(group.scatter(x, at::Tensor(), 0, 0));
  EXPECT_NO_THROW(group.recv(x, 0));
}

TEST(WorldMesh, AnEngineSaysWhichTensorsItCannotMove) {
  run_ranks(2, [](World& world) {
    try {
      world.group().all_reduce(at::empty({2, 3}, at::device(at::kMeta)), ReduceOp::Sum);
      FAIL() << "a tensor without data was moved";
    } catch (const UsageError& error) {
      EXPECT_EQ(error.sentence(), "the shm engine cannot move tensors of the device meta");
    }
  });
}

}  // namespace world_mesh_test
}  // namespace tegula
