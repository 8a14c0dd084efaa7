// A slice of a mesh is a family of fibers; each of them is a mesh of its own to its ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/payload/guards.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace mesh_slices_test {

// Runs as four ranks with each slice of (a=2, b=2); `fiber` and the rank's place in it are given.
struct Here {
  World& world;
  DeviceMesh mesh;
  std::int64_t fiber;
  std::int64_t place;
};

void on_slices(const std::function<void(const Here&)>& body) {
  run_impatient(4, [&](World& world) {
    const DeviceMesh root = usual_mesh(world);
    for (const char* axis : {"a", "b"}) {
      const DeviceMesh mesh = root[axis];
      body({world, mesh, *mesh.fiber_of(world.rank()), (*mesh.coordinate_of(world.rank()))[0]});
    }
  });
}

const std::vector<Placement> kPlacements{Replicate(), Shard(0), Shard(1), Partial(),
                                         Partial(ReduceOp::Max)};

at::Tensor data_of(std::int64_t rank) {
  return numbers({5, 3}, static_cast<std::uint64_t>(rank) + 1);
}

TEST(Slice, EachFiberDistributesItsOwnData) {
  on_slices([](const Here& here) {
    for (const Placement& placement : kPlacements) {
      for (std::int64_t source : {0, 1}) {
        const at::Tensor x =
            distribute_tensor(data_of(here.world.rank()), here.mesh, {placement}, {source, {}});
        const std::int64_t sender = here.mesh.rank_at({source}, here.fiber);
        EXPECT_EQ(difference(full_tensor(x), data_of(sender)), "")
            << to_string(placement) << ", source " << source;
      }
    }
  });
}

TEST(Slice, TheRanksOfOneFiberNeedNoOthersToDistribute) {
  on_slices([](const Here& here) {
    if (here.fiber == 1) return;  // takes no part in anything
    for (const Placement& placement : kPlacements) {
      const at::Tensor x = distribute_tensor(data_of(here.world.rank()), here.mesh, {placement});
      const std::int64_t sender = here.mesh.rank_at({0}, here.fiber);
      EXPECT_EQ(difference(full_tensor(x), data_of(sender)), "") << to_string(placement);
    }
  });
}

TEST(Slice, TheRanksOfOneFiberNeedNoOthersToMoveToAnotherMeshOfTheirs) {
  on_slices([](const Here& here) {
    if (here.fiber == 0) return;
    const std::string axis = here.mesh.axes()[0].name;
    const DeviceMesh other = here.mesh.unflatten(axis, {{"x", 1}, {"y", 2}});
    const at::Tensor x =
        distribute_tensor(data_of(here.world.rank()), here.mesh, {Shard(0)}, {1, {}});
    const at::Tensor moved = redistribute(x, other, {Replicate(), Shard(1)});
    const at::Tensor want = data_of(here.mesh.rank_at({1}, here.fiber));
    EXPECT_EQ(difference(full_tensor(moved), want), "");
  });
}

TEST(Slice, AFiberMayHoldWhatAnotherDoesNot) {
  on_slices([](const Here& here) {
    const at::Tensor want = data_of(here.mesh.rank_at({0}, here.fiber));
    const at::Tensor x = distribute_tensor(want, here.mesh, {Shard(0)});
    EXPECT_EQ(difference(full_tensor(redistribute(x, {Shard(1)})), want), "");
    EXPECT_EQ(difference(full_tensor(x.sum(0)), want.sum(0)), "");
    EXPECT_EQ(difference(full_tensor(at::mm(x, x.t())), at::mm(want, want.t())), "");
    EXPECT_EQ(difference(full_tensor(std::get<0>(x.sort(0))), std::get<0>(want.sort(0))), "");
  });
}

TEST(Slice, TilesOfAFiberAreOneTensor) {
  on_slices([](const Here& here) {
    const std::int64_t rows = here.fiber + 1;  // each fiber has sizes of its own
    const at::Tensor tile = at::full({rows, 2}, here.world.rank(), at::kDouble);
    const at::Tensor x = from_local(tile, here.mesh, {Shard(0)});
    EXPECT_EQ(x.size(0), 2 * rows);
    const at::Tensor want =
        at::cat({at::full({rows, 2}, here.mesh.rank_at({0}, here.fiber), at::kDouble),
                 at::full({rows, 2}, here.mesh.rank_at({1}, here.fiber), at::kDouble)});
    EXPECT_EQ(difference(full_tensor(x), want), "");
  });
}

TEST(Slice, RandomNumbersAreTheSameInAllFibers) {
  on_slices([](const Here& here) {
    const at::Tensor x = rand({5, 3}, here.mesh, {Shard(0)});
    const at::Tensor everywhere =
        distribute_tensor(full_tensor(x), here.mesh.root(), {Replicate(), Replicate()});
    EXPECT_EQ(difference(full_tensor(x), full_tensor(everywhere)), "");
  });
}

TEST(Slice, ModulesAreBuiltInPiecesOnEachFiber) {
  on_slices([](const Here& here) {
    const BuildDistributed build(here.mesh, [](at::IntArrayRef) { return Placements{Shard(0)}; });
    const at::Tensor x = at::ones({5, 3}, at::kDouble);
    EXPECT_TRUE(mesh_of(x) == here.mesh);
    EXPECT_EQ(to_local(x).size(0), here.place == 0 ? 3 : 2);
  });
}

TEST(Slice, ASourceThatIsNoPlaceOfTheMeshIsRefused) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world)["b"];
    for (std::int64_t source : {-1, 2}) {
      const std::string text =
          error_of([&] { distribute_tensor(at::ones({4}), mesh, {Shard(0)}, {source, {}}); });
      EXPECT_EQ(text, "tegula: the mesh has no place " + std::to_string(source) +
                          " whose data could be distributed\n"
                          "  mesh    (b=2) of (a=2, b=2)\n"
                          "  hint    source is a place in the mesh, from 0 to 1");
    }
  });
}

TEST(SubMesh, TheSourceIsAPlaceAmongItsRanks) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}}, {3, 1});
    const at::Tensor mine = data_of(world.rank());
    for (const auto& [source, rank] : {std::pair{0, 3}, std::pair{1, 1}}) {
      const at::Tensor x = distribute_tensor(mine, mesh, {Shard(0)}, {source, {}});
      if (world.rank() % 2 == 0) {
        EXPECT_EQ(to_local(x).numel(), 0);
      } else {
        EXPECT_EQ(difference(full_tensor(x), data_of(rank)), "");
      }
    }
  });
}

TEST(SubMesh, AMeshOfSomeRanksTalksAmongThoseOnly) {
  const at::Tensor plain = numbers({5});
  run_impatient(4, [&](World& world) {
    if (world.rank() % 2 == 0) return;  // takes no part in anything
    const DeviceMesh mesh = world.mesh({{"a", 2}}, {3, 1});
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)});
    EXPECT_TRUE(at::equal(x, x.clone()));
    EXPECT_FALSE(at::equal(x, x + 1));
    EXPECT_TRUE(at::equal(full_tensor(x), plain));
    EXPECT_EQ(difference(full_tensor(x.sum()), plain.sum()), "");
    EXPECT_EQ(x[3].item<double>(), plain[3].item<double>());
    EXPECT_EQ(full_tensor(from_local(at::ones({2}), mesh, {Shard(0)})).numel(), 4);
  });
}

TEST(Slice, ASubMeshTalksAmongItsFiberOnly) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world)["b"];
    const std::int64_t fiber = *mesh.fiber_of(world.rank());
    const at::Tensor plain = numbers({5}, static_cast<std::uint64_t>(fiber) + 10);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)}, {std::nullopt, {}});
    EXPECT_TRUE(at::equal(full_tensor(x), plain));
    if (fiber == 0) return;
    EXPECT_EQ(difference(full_tensor(x.sum()), plain.sum()), "");
  });
}

}  // namespace mesh_slices_test
}  // namespace tegula
