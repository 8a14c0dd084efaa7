// The public functions: making DTensors, taking them apart, moving and printing them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tegula/random/random.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace api_test {

// What each rank's call throws.
std::vector<std::string> errors_of(int ranks, const std::function<void(World&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_impatient(ranks, [&](World& world) {
    texts[static_cast<std::size_t>(world.rank())] = error_of([&] { body(world); });
  });
  return texts;
}

void expect_in_all(const std::vector<std::string>& texts, const std::vector<std::string>& parts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const std::string& part : parts) {
      EXPECT_TRUE(contains(texts[rank], part))
          << "rank " << rank << " lacks \"" << part << "\": " << texts[rank];
    }
  }
}

// --- asking

TEST(Spec, APlainTensorHasNone) {
  const at::Tensor plain = at::ones({2});
  EXPECT_FALSE(is_dtensor(plain));
  EXPECT_FALSE(is_dtensor(at::Tensor()));
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { spec_of(plain); }, [&] { placements_of(plain); }, [&] { mesh_of(plain); },
           [&] { world_of(plain); }, [&] { to_local(plain); }, [&] { full_tensor(plain); },
           [&] { redistribute(plain, {Replicate()}); }}) {
    const std::string text = error_of(call);
    EXPECT_TRUE(contains(text, "needs a DTensor")) << text;
    EXPECT_TRUE(contains(text, "plain Float[2]")) << text;
  }
}

TEST(Spec, SaysWhatTheTensorWasMadeWith) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = zeros({5, 4}, mesh, {Shard(-1), Replicate()});
    EXPECT_EQ(to_string(spec_of(x)), "f32[5, 4] on (a=2, b=2) as [S(1), R]");
    EXPECT_TRUE(mesh_of(x) == mesh);
    EXPECT_TRUE(world_of(x) == world);
    EXPECT_TRUE(World::of(mesh_of(x)) == world);
  });
}

// --- distribute_tensor

TEST(DistributeTensor, OnlyTheDataOfTheSourceCounts) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor mine = at::full({5}, world.rank(), at::kDouble);
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Replicate()), Placement(Partial())}) {
      EXPECT_EQ(full_tensor(distribute_tensor(mine, mesh, {placement})).sum().item<double>(), 0);
      EXPECT_EQ(
          full_tensor(distribute_tensor(mine, mesh, {placement}, {2, {}})).sum().item<double>(),
          10);
    }
    const at::Tensor own = distribute_tensor(mine, mesh, {Shard(0)}, {std::nullopt, {}});
    EXPECT_EQ(difference(full_tensor(own), at::tensor({0., 0., 1., 1., 2.}, at::kDouble)), "");
  });
}

TEST(DistributeTensor, DoesNotShareMemoryWithTheData) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    for (const std::optional<std::int64_t> source :
         {std::optional<std::int64_t>(0), {std::nullopt}}) {
      for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
        const at::Tensor plain = at::zeros({4});
        const at::Tensor x = distribute_tensor(plain, mesh, {placement}, {source, {}});
        x.fill_(1);
        EXPECT_EQ(plain.sum().item<float>(), 0);
      }
    }
  });
}

TEST(DistributeTensor, ALeafStaysALeaf) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(leaf({4}), mesh, {Shard(0)});
    EXPECT_TRUE(x.is_leaf());
    EXPECT_TRUE(x.requires_grad());
    EXPECT_FALSE(distribute_tensor(numbers({4}), mesh, {Shard(0)}).requires_grad());
    EXPECT_TRUE(contains(error_of([&] { distribute_tensor(leaf({4}) * 2, mesh, {Shard(0)}); }),
                         "from its history"));
    EXPECT_TRUE(contains(error_of([&] { distribute_tensor(x, mesh, {Shard(0)}); }),
                         "needs a plain strided tensor"));
    EXPECT_TRUE(
        contains(error_of([&] { distribute_tensor(numbers({4}), mesh, {Shard(3)}); }), "dim 3"));
    EXPECT_TRUE(contains(
        error_of([&] { distribute_tensor(numbers({4}), DeviceMesh({{"a", 2}}), {Shard(0)}); }),
        "tegula:"));
  });
}

TEST(DistributeTensor, EveryDtypeTravels) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    for (const at::ScalarType type :
         {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
          at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
      const at::Tensor plain = at::arange(5).to(type);
      const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)});
      EXPECT_EQ(x.scalar_type(), type);
      EXPECT_TRUE(at::equal(full_tensor(x), plain)) << type;
      EXPECT_TRUE(at::equal(full_tensor(x.clone()), plain)) << type;
    }
  });
}

TEST(DistributeTensor, AShapeWithoutDataBecomesTilesToFill) {
  run_impatient(2, [](World& world) {
    const at::Tensor meta = at::empty({4, 5}, at::TensorOptions(at::kMeta));
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(meta, mesh, {Shard(0)});
    EXPECT_EQ(spec_of(x), DTensorSpec(mesh, {Shard(0)}, TensorMeta({4, 5}, DType::F32)));
    EXPECT_EQ(difference(full_tensor(x.fill_(2)), at::full({4, 5}, 2.F)), "");
    EXPECT_TRUE(
        contains(error_of([&] { from_local(meta, mesh, {Shard(0)}); }), "on the mesh's device"));
  });
}

TEST(DistributeTensor, NothingIsSentForWhatIsTheSameOnAllRanks) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const CommLog log(world);
    const at::Tensor x =
        distribute_tensor(numbers({5, 3}), mesh, {Shard(0), Partial()}, kSameOnAllRanks);
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_EQ(difference(full_tensor(x), numbers({5, 3})), "");
  });
}

// --- shard_batch

TEST(ShardBatch, CutsRowsOverTheDataAxisAndSendsNothing) {
  const at::Tensor batch = numbers({5, 3});
  const auto expect_batch = [&](World& world, const DeviceMesh& mesh, std::string_view axis,
                                const std::string& placements) {
    const CommLog log(world);
    const at::Tensor x = shard_batch(batch, mesh, axis);
    EXPECT_TRUE(log.empty()) << log.to_string();
    EXPECT_EQ(to_string(placements_of(x)), placements) << mesh;
    EXPECT_EQ(difference(full_tensor(x), batch), "");
  };
  run_impatient(1,
                [&](World& world) { expect_batch(world, world.mesh({{"dp", 1}}), {}, "[S(0)]"); });
  run_impatient(3, [&](World& world) {
    expect_batch(world, world.mesh({{"any", 3}}), {}, "[S(0)]");
    expect_batch(world, world.mesh({{"any", 3}}), "any", "[S(0)]");
  });
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}, {"dp", 2}});
    expect_batch(world, mesh, {}, "[R, S(0)]");
    expect_batch(world, mesh, "dp", "[R, S(0)]");
    expect_batch(world, mesh, "tp", "[S(0), R]");
    expect_batch(world, mesh["dp"], {}, "[S(0)]");
  });
}

TEST(ShardBatch, SaysWhichAxesThereAre) {
  expect_in_all(errors_of(4, [](World& world) { shard_batch(numbers({4}), usual_mesh(world)); }),
                {"does not know which axis", "(a=2, b=2)", "shard_batch(x, mesh, \"a\")"});
  expect_in_all(
      errors_of(2, [](World& world) { shard_batch(numbers({4}), usual_mesh(world), "dp"); }),
      {"\"dp\"", "a"});
  expect_in_all(errors_of(2, [](World& world) { shard_batch(at::ones({}), usual_mesh(world)); }),
                {"dim 0"});
}

// --- plain tensors among distributed ones

TEST(PlainTensors, TheHintNamesTheWaysToMakeADTensor) {
  expect_in_all(errors_of(2,
                          [](World& world) {
                            const at::Tensor x = ones({2000}, usual_mesh(world), {Shard(0)});
                            x + at::zeros(x.sizes(), x.options());
                          }),
                {"a plain tensor that may differ", "distribute_tensor", "zeros_like", "new_zeros",
                 "ImplicitReplication"});
}

TEST(PlainTensors, WhatIsMadeFromADTensorIsOne) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4, 6}, usual_mesh(world), {Shard(0)});
    const at::Tensor like = at::zeros_like(x), made = x.new_zeros({6});
    EXPECT_EQ(to_string(placements_of(like)), "[S(0)]");
    EXPECT_EQ(to_string(placements_of(made)), "[R]");
    EXPECT_EQ(difference(full_tensor(x + like + made), at::ones({4, 6})), "");
  });
}

// --- from_local

TEST(FromLocal, TilesOfAnySizesMakeOneTensor) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    Random random(4);
    for (int round = 0; round < 20; ++round) {
      const at::Tensor whole = numbers({7, 5}, static_cast<std::uint64_t>(round + 1));
      const Placements placements = some_placements(random, mesh, whole, false);
      const DTensorSpec spec(mesh, placements, TensorMeta({7, 5}, DType::F64));
      const at::Tensor tile = cut_tile(whole, spec, *mesh.coordinate_of(world.rank()));
      Placements plain_cuts = placements;  // from_local finds the sizes out
      for (Placement& placement : plain_cuts) {
        if (const Shard* shard = as_shard(placement)) placement = Shard(shard->dim());
      }
      const at::Tensor x = from_local(tile, mesh, plain_cuts);
      EXPECT_EQ(difference(full_tensor(x), whole), "") << to_string(spec);
      EXPECT_TRUE(at::equal(to_local(x), tile));
    }
  });
}

TEST(FromLocal, SharesMemoryWithTheLocal) {
  run_impatient(2, [](World& world) {
    const at::Tensor local = at::zeros({2, 3});
    const at::Tensor x = from_local(local, usual_mesh(world), {Shard(0)});
    x.fill_(1);
    EXPECT_EQ(local.sum().item<float>(), 6);
  });
}

TEST(FromLocal, DifferentDtypesAreNamedOnAllRanks) {
  expect_in_all(
      errors_of(3,
                [](World& world) {
                  const at::ScalarType type = world.rank() == 1 ? at::kHalf : at::kFloat;
                  from_local(at::ones({2, 3}, type), usual_mesh(world), {Shard(0)});
                }),
      {"different dims or element types", "rank 1", "Half[2, 3]", "ranks 0, 2", "Float[2, 3]"});
}

TEST(FromLocal, DifferentDimsAreNamedOnAllRanks) {
  expect_in_all(errors_of(3,
                          [](World& world) {
                            from_local(world.rank() == 2 ? at::ones({2}) : at::ones({2, 3}),
                                       usual_mesh(world), {Shard(0)});
                          }),
                {"different dims", "rank 2", "Float[2]", "ranks 0, 1"});
}

TEST(FromLocal, DifferentSizesOfUncutDimsAreNamedOnAllRanks) {
  expect_in_all(errors_of(3,
                          [](World& world) {
                            from_local(at::ones({2, world.rank() == 0 ? 4 : 3}), usual_mesh(world),
                                       {Shard(0)});
                          }),
                {"differ along dim 1", "rank 0", "Float[2, 4]", "ranks 1, 2", "Float[2, 3]"});
}

TEST(FromLocal, DifferentReplicasAreNamedOnAllRanks) {
  expect_in_all(errors_of(4,
                          [](World& world) {
                            from_local(at::ones({world.rank() == 3 ? 4 : 2}), usual_mesh(world),
                                       {Replicate(), Replicate()});
                          }),
                {"differ along dim 0", "rank 3", "ranks 0, 1, 2"});
  expect_in_all(errors_of(4,
                          [](World& world) {
                            from_local(at::ones({world.rank() == 3 ? 4 : 2}), usual_mesh(world),
                                       {Shard(0), Replicate()});
                          }),
                {"differ along dim 0", "rank 3", "replicas of a shard have one size"});
}

TEST(FromLocal, DifferentPlacementsAreNamedOnAllRanks) {
  expect_in_all(errors_of(3,
                          [](World& world) {
                            const Placement placement =
                                world.rank() == 1 ? Placement(Shard(0)) : Placement(Replicate());
                            from_local(at::ones({2}), usual_mesh(world), {placement});
                          }),
                {"different placements", "rank 1", "ranks 0, 2", "[S(0)]", "[R]"});
}

TEST(FromLocal, AShapeThatTheTilesDoNotMakeIsRefusedOnAllRanks) {
  expect_in_all(errors_of(3,
                          [](World& world) {
                            FromLocalOptions options;
                            options.shape = Shape{7};
                            from_local(at::ones({2}), usual_mesh(world), {Shard(0)}, options);
                          }),
                {"do not add up to the shape [7] but to [6]"});
}

TEST(FromLocal, UncheckedSendsNothingAndLooksAtItsOwnTile) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    FromLocalOptions options;
    options.check = false;
    options.shape = Shape{5};
    const std::int64_t size = world.rank() == 2 ? 1 : 2;
    at::Tensor x;
    if (world.rank() == 1) x = from_local(at::ones({size}), mesh, {Shard(0)}, options);
    world.group().barrier();
    if (world.rank() != 1) x = from_local(at::ones({size}), mesh, {Shard(0)}, options);
    EXPECT_EQ(difference(full_tensor(x), at::ones({5})), "");
    EXPECT_TRUE(contains(error_of([&] { from_local(at::ones({9}), mesh, {Shard(0)}, options); }),
                         "tegula:"));
  });
}

TEST(FromLocal, AShardOrderIsHonoured) {
  const at::Tensor whole = numbers({7});
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    FromLocalOptions options;
    options.order = {{0, {1, 0}}};
    const DTensorSpec spec(mesh, {Shard(0), Shard(0)}, options.order, TensorMeta({7}, DType::F64));
    const at::Tensor tile = cut_tile(whole, spec, *mesh.coordinate_of(world.rank()));
    const at::Tensor x = from_local(tile, mesh, {Shard(0), Shard(0)}, options);
    EXPECT_TRUE(spec_of(x) == spec) << to_string(spec_of(x));
    EXPECT_EQ(difference(full_tensor(x), whole), "");
  });
}

TEST(FromLocal, TheLocalGetsItsTileOfTheGradient) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor local = at::ones({2}, at::kDouble).requires_grad_();
    const at::Tensor x = from_local(local, mesh, {Shard(0)});
    const at::Tensor weights = arange(0, 6, 1, mesh, {Replicate()}, at::kDouble);
    (x * weights).sum().backward();
    const double first = 2.0 * world.rank();
    EXPECT_EQ(difference(local.grad(), at::tensor({first, first + 1}, at::kDouble)), "");
  });
}

TEST(FromLocal, APartOfASumGetsTheWholeGradient) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor local = at::ones({2}, at::kDouble).requires_grad_();
    const at::Tensor x = from_local(local, mesh, {Partial()});
    x.square().sum().backward();
    EXPECT_EQ(difference(local.grad(), at::full({2}, 6.0, at::kDouble)), "");
  });
}

TEST(FromLocal, TheGradientComesPlacedAsAsked) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor local = at::ones({2}, at::kDouble).requires_grad_();
    FromLocalOptions options;
    options.grad_placements = Placements{Partial()};
    const at::Tensor x = from_local(local, mesh, {Replicate()}, options);
    (x * 3).sum().backward();
    // parts of the gradient: their sum over the ranks is the gradient
    const at::Tensor sum = world.group().all_reduce(local.grad(), ReduceOp::Sum);
    EXPECT_EQ(difference(sum, at::full({2}, 3.0, at::kDouble)), "");
  });
}

// --- to_local and full_tensor

TEST(ToLocal, TheGradientsOfTheLocalsFormTheGradient) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(leaf({5}), mesh, {Shard(0)});
    (to_local(x) * (world.rank() + 1)).sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), at::tensor({1., 1., 2., 2., 3.}, at::kDouble)), "");
  });
}

TEST(ToLocal, GradientsThatArePartsAreSummed) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(leaf({4}), mesh, {Replicate()});
    (to_local(x, Placements{Partial()}) * (world.rank() + 1)).sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), at::full({4}, 6.0, at::kDouble)), "");
    EXPECT_EQ(to_string(placements_of(x.grad())), "[R]");
    const at::Tensor y = distribute_tensor(leaf({4}), mesh, {Shard(0)});
    (full_tensor(y, Placements{Partial()}) * (world.rank() + 1)).sum().backward();
    EXPECT_EQ(difference(full_tensor(y.grad()), at::full({4}, 6.0, at::kDouble)), "");
    EXPECT_EQ(to_string(placements_of(y.grad())), "[S(0)]");
  });
}

TEST(FullTensor, IsDifferentiable) {
  expect_as_plain({leaf({5, 3})},
                  [](const Tensors& in) -> Tensors {
                    const at::Tensor x = in[0] * 2;
                    return {is_dtensor(x) ? full_tensor(x).sin() : x.sin()};
                  },
                  {1e-9, 6, true, true, true});
}

TEST(FullTensor, OfAReplicaMayBeChangedOnlyKnowingly) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4}, mesh, {Shard(0)});
    full_tensor(x).fill_(5);
    EXPECT_EQ(difference(full_tensor(x), at::ones({4})), "");
  });
}

// --- redistribute

struct Route {
  std::vector<MeshAxis> axes;
  std::vector<std::int64_t> ranks;
  Placements placements;
};

TEST(Redistribute, ReachesOtherMeshesWithGradients) {
  const std::vector<Route> from = {{{{"a", 2}}, {0, 1}, {Shard(0)}},
                                   {{{"a", 2}}, {0, 1}, {Partial()}},
                                   {{{"a", 4}}, {}, {Shard(1)}},
                                   {{{"a", 2}, {"b", 2}}, {}, {Shard(0), Shard(0)}}};
  const std::vector<Route> to = {
      {{{"x", 2}}, {1, 0}, {Shard(0)}},     // the same ranks, turned round
      {{{"x", 2}}, {0, 1}, {Replicate()}},  // other name
      {{{"x", 2}}, {2, 3}, {Shard(1)}},     // disjoint
      {{{"x", 3}}, {1, 2, 3}, {Shard(0)}},  // overlapping
      {{{"x", 1}}, {3}, {Replicate()}},     // one rank
      {{{"x", 2}, {"y", 2}}, {3, 1, 2, 0}, {Replicate(), Shard(1)}},
      {{{"x", 4}}, {}, {Partial()}},
  };
  const at::Tensor plain = numbers({5, 3});
  run_impatient(4, [&](World& world) {
    for (const Route& a : from) {
      for (const Route& b : to) {
        SCOPED_TRACE(to_string(a.placements) + " to " + to_string(b.placements));
        const DeviceMesh here = world.mesh(a.axes, a.ranks);
        const DeviceMesh there = world.mesh(b.axes, b.ranks);
        const at::Tensor x =
            distribute_tensor(plain, here, a.placements, {std::nullopt, {}}).requires_grad_();
        const at::Tensor y = redistribute(x, there, b.placements);
        EXPECT_TRUE(mesh_of(y) == there);
        EXPECT_EQ(to_string(placements_of(y)), to_string(b.placements));
        if (there.coordinate_of(world.rank())) {
          EXPECT_EQ(difference(full_tensor(y.detach()), plain), "");
        } else {
          EXPECT_EQ(to_local(y.detach()).numel(), 0);
        }
        y.sin().sum().backward();
        EXPECT_TRUE(x.grad().defined());
        if (x.grad().defined() && here.coordinate_of(world.rank())) {
          EXPECT_EQ(difference(full_tensor(x.grad()), plain.cos()), "");
        }
      }
    }
  });
}

TEST(Redistribute, ChangesTheShardOrder) {
  const at::Tensor plain = numbers({7, 3});
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0), Shard(0)}).requires_grad_();
    RedistributeOptions options;
    options.order = {{0, {1, 0}}};
    const at::Tensor y = redistribute(x, {Shard(0), Shard(0)}, options);
    EXPECT_EQ(to_string(spec_of(y)), "f64[7, 3] on (a=2, b=2) as [S(0)[1], S(0)[0]]");
    EXPECT_TRUE(at::equal(to_local(y.detach()),
                          cut_tile(plain, spec_of(y), *mesh.coordinate_of(world.rank()))));
    y.sin().sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), plain.cos()), "");
    EXPECT_TRUE(spec_of(x.grad()) == spec_of(x));
  });
}

TEST(Redistribute, AsyncGivesTheSame) {
  const at::Tensor plain = numbers({7, 3});
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    Random random(9);
    for (int round = 0; round < 30; ++round) {
      const Placements a = some_placements(random, mesh, plain, true);
      const Placements b = some_placements(random, mesh, plain, true);
      SCOPED_TRACE(to_string(a) + " to " + to_string(b));
      const at::Tensor x = distribute_tensor(plain, mesh, a, {std::nullopt, {}}).requires_grad_();
      const at::Tensor y = redistribute(x, b, kAsync);
      const at::Tensor z = redistribute(x, a, kAsync);
      EXPECT_EQ(difference(full_tensor((y + z).detach()), plain * 2), "");
      y.sin().sum().backward();
      EXPECT_EQ(difference(full_tensor(x.grad()), plain.cos()), "");
    }
    world.group().barrier();
  });
}

TEST(Redistribute, AnAsyncResultThatNobodyUsesDoesNoHarm) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({5}, mesh, {Shard(0)});
    for (int round = 0; round < 5; ++round) redistribute(x, {Replicate()}, kAsync);
    EXPECT_EQ(difference(full_tensor(x + 1), at::full({5}, 2.0f)), "");
    world.group().barrier();
  });
}

TEST(Redistribute, TravelsInAnotherDtypeAndComesBack) {
  const at::Tensor plain = numbers({7, 3});
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)}).requires_grad_();
    RedistributeOptions options;
    options.wire = at::kBFloat16;
    const at::Tensor y = redistribute(x, {Replicate()}, options);
    EXPECT_EQ(y.scalar_type(), at::kDouble);
    EXPECT_EQ(difference(full_tensor(y.detach()), plain, 1e-2), "");
    EXPECT_FALSE(at::equal(full_tensor(y.detach()), plain));
    y.sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), at::ones({7, 3}, at::kDouble)), "");
  });
}

TEST(Redistribute, ToTheSamePlacementsIsTheIdentity) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({5}, mesh, {Shard(0)});
    if (world.rank() == 0) redistribute(x, {Shard(0)});  // no other rank is needed
    EXPECT_TRUE(spec_of(redistribute(x, {Shard(0)})) == spec_of(x));
  });
}

TEST(Redistribute, WrongPlacementsAreRefusedBeforeAnythingIsSent) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({5}, usual_mesh(world), {Shard(0)});
    EXPECT_TRUE(contains(error_of([&] { redistribute(x, {Shard(1)}); }), "dim 1"));
    EXPECT_TRUE(contains(error_of([&] { redistribute(x, {}); }), "tegula:"));
    EXPECT_TRUE(contains(error_of([&] { redistribute(x, DeviceMesh({{"a", 2}}), {Shard(0)}); }),
                         "tegula:"));
    EXPECT_EQ(difference(full_tensor(x), at::ones({5})), "");
  });
}

// --- factories

TEST(Factories, GiveThePlainValues) {
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      Random random(6);
      for (int round = 0; round < 10; ++round) {
        const auto at = [&](const at::Tensor& like) {
          return some_placements(random, mesh, like, true);
        };
        const auto check = [](const at::Tensor& got, const at::Tensor& want) {
          EXPECT_EQ(got.strides(), want.strides());
          EXPECT_EQ(difference(full_tensor(got), want), "") << to_string(spec_of(got));
        };
        const at::Tensor line = at::arange(7);
        check(arange(0, 7, 1, mesh, at(line)), line);
        check(arange(3, -4, -2, mesh, at(at::arange(3, -4, -2))), at::arange(3, -4, -2));
        check(arange(0.5, 3.1, 0.3, mesh, at(at::arange(0.5, 3.1, 0.3)), at::kDouble),
              at::arange(0.5, 3.1, 0.3, at::kDouble));
        check(arange(0, 5, 1, mesh, at(at::arange(5)), at::kFloat), at::arange(5, at::kFloat));
        check(arange(2, 2, 1, mesh, {mesh.ndim(), Replicate()}), at::arange(2, 2, 1));
        const at::Tensor square = at::eye(5, 7);
        check(eye(5, 7, mesh, at(square)), square);
        check(eye(7, 5, mesh, at(at::eye(7, 5)), at::kDouble), at::eye(7, 5, at::kDouble));
        check(full({3, 5}, 2.5, mesh, at(at::zeros({3, 5}))), at::full({3, 5}, 2.5));
        check(zeros({5, 2}, mesh, at(at::zeros({5, 2}))), at::zeros({5, 2}));
        check(ones({5, 2}, mesh, at(at::zeros({5, 2})), at::kLong), at::ones({5, 2}, at::kLong));
        check(ones({}, mesh, at(at::zeros({}))), at::ones({}));
        check(zeros({0, 3}, mesh, at(at::zeros({0, 3}))), at::zeros({0, 3}));
        EXPECT_EQ(empty({5, 2}, mesh, at(at::zeros({5, 2}))).sizes(), at::IntArrayRef({5, 2}));
      }
      EXPECT_TRUE(zeros({2}, mesh, Placements(mesh.ndim(), Shard(0)),
                        at::TensorOptions().requires_grad(true))
                      .requires_grad());
    });
  }
}

TEST(Factories, RandomOnesAreTheSameOnAllMeshes) {
  Tensors want;
  const auto draws = [](World& world, const DeviceMesh& mesh, Random& random) -> Tensors {
    manual_seed(world, 11);
    const at::Tensor like = at::zeros({7, 5});
    const auto at = [&] { return some_placements(random, mesh, like, true); };
    return {full_tensor(rand({7, 5}, mesh, at())),
            full_tensor(randn({7, 5}, mesh, at())),
            full_tensor(randint(-3, 12, {7, 5}, mesh, at())),
            full_tensor(rand({7, 5}, mesh, at(), at::kDouble)),
            full_tensor(randn({7, 5}, mesh, at(), at::kBFloat16)),
            full_tensor(randn({7, 5}, mesh, at()))};
  };
  run_impatient(1, [&](World& world) {
    Random random(1);
    want = draws(world, world.mesh({{"a", 1}}), random);
  });
  EXPECT_FALSE(at::equal(want[1], want[5]));
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      Random random(2);
      for (int round = 0; round < 5; ++round) {
        const Tensors got = draws(world, usual_mesh(world), random);
        for (std::size_t i = 0; i < want.size(); ++i) {
          // what owes a sum is made of parts, which may round
          EXPECT_EQ(difference(got[i], want[i], 1e-6), "") << i;
        }
      }
    });
  }
}

TEST(Factories, RefuseWhatMakesNoSense) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    EXPECT_TRUE(contains(error_of([&] { zeros({-1}, mesh, {Shard(0)}); }), "tegula:"));
    EXPECT_TRUE(contains(error_of([&] { zeros({4}, mesh, {Shard(1)}); }), "dim 1"));
    EXPECT_TRUE(contains(error_of([&] { zeros({4}, mesh, {}); }), "tegula:"));
    EXPECT_NE(error_of([&] { arange(0, 5, 0, mesh, {Shard(0)}); }), "nothing was thrown");
    EXPECT_NE(error_of([&] { randint(5, 5, {3}, mesh, {Shard(0)}); }), "nothing was thrown");
  });
}

// --- local_map

TEST(LocalMap, RunsOnTilesWithGradients) {
  const at::Tensor plain = numbers({5, 3});
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)}).requires_grad_();
    const at::Tensor extra = at::full({3}, 2.0, at::kDouble);
    const Tensors results = local_map(
        [](const Tensors& locals) -> Tensors {
          EXPECT_FALSE(is_dtensor(locals[0]));
          return {locals[0] * locals[1], locals[0].sum(0)};
        },
        {x, extra}, {{Shard(0)}, {Partial()}});
    EXPECT_EQ(difference(full_tensor(results[0].detach()), plain * 2), "");
    EXPECT_EQ(difference(full_tensor(results[1].detach()), plain.sum(0)), "");
    (results[0].sin().sum() + results[1].sin().sum()).backward();
    const at::Tensor want = leaf({5, 3});
    ((want * 2).sin().sum() + want.sum(0).sin().sum()).backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), want.grad()), "");
  });
}

TEST(LocalMap, BringsItsInputsWhereTheyAreWanted) {
  const at::Tensor plain = numbers({5, 3});
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)}).requires_grad_();
    const at::Tensor w = distribute_tensor(numbers({3, 4}, 2), mesh, {Shard(0)}).requires_grad_();
    LocalMapOptions options;
    options.in_placements = {{Shard(0)}, {Replicate()}};
    options.in_grad_placements = {{Shard(0)}, {Partial()}};
    const Tensors results =
        local_map([](const Tensors& locals) -> Tensors { return {locals[0].mm(locals[1])}; },
                  {x, w}, {{Shard(0)}}, options);
    EXPECT_EQ(difference(full_tensor(results[0].detach()), plain.mm(numbers({3, 4}, 2))), "");
    results[0].sin().sum().backward();
    const at::Tensor a = leaf({5, 3});
    const at::Tensor b = leaf({3, 4}, 2);
    a.mm(b).sin().sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), a.grad()), "");
    EXPECT_EQ(difference(full_tensor(w.grad()), b.grad()), "");
  });
}

TEST(LocalMap, RefusesWhatItCannotPlace) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)});
    const auto same = [](const Tensors& locals) { return locals; };
    EXPECT_TRUE(contains(error_of([&] { local_map(same, {at::ones({2})}, {{Shard(0)}}); }),
                         "needs a DTensor"));
    EXPECT_TRUE(contains(error_of([&] { local_map(same, {x}, {}); }), "for each result"));
  });
}

// --- printing

TEST(Printing, ShowsTrueValuesAndTheSpec) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    EXPECT_EQ(to_string(arange(0, 5, 1, mesh, {Shard(0)})),
              " 0\n 1\n 2\n 3\n 4\n[ i64[5] on (a=2) as [S(0)] ]");
    EXPECT_EQ(to_string(from_local(at::full({}, 2.0), mesh, {Partial()})),
              "4\n[ f32[] on (a=2) as [P(sum)] ]");
    EXPECT_EQ(to_string(from_local(at::ones({2}), mesh, {Partial()})),
              " 2\n 2\n[ f32[2] on (a=2) as [P(sum)] ]");
  });
}

TEST(Printing, LargeOnesAreSummarised) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const std::string text = to_string(arange(0, 5000, 1, mesh, {Shard(0)}));
    for (const char* part : {"0\n", "1\n", "4997", "4999", "i64[5000] on (a=3) as [S(0)]",
                             "first and last 3 of each dim"}) {
      EXPECT_TRUE(contains(text, part)) << text;
    }
    EXPECT_FALSE(contains(text, "2500"));
    EXPECT_LT(text.size(), 300u);
    const std::string square = to_string(zeros({100, 100}, mesh, {Shard(1)}));
    EXPECT_TRUE(contains(square, "f32[100, 100] on (a=3) as [S(1)]")) << square;
  });
}

TEST(Printing, OfAnEmptyOrPlainTensorWorks) {
  run_impatient(2, [](World& world) {
    const std::string text = to_string(zeros({0, 3}, usual_mesh(world), {Shard(0)}));
    EXPECT_TRUE(contains(text, "f32[0, 3] on (a=2) as [S(0)]")) << text;
    EXPECT_TRUE(contains(to_string(at::ones({2})), "CPUFloatType{2}"));
  });
}

TEST(Printing, RecordsNothing) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)}).requires_grad_();
    to_string(x * 2);
    x.sum().backward();
    EXPECT_EQ(difference(full_tensor(x.grad()), at::ones({4})), "");
  });
}

// --- ranks outside of the mesh

TEST(Outside, EveryFunctionMayBeCalledAndTakesNoPart) {
  const at::Tensor plain = numbers({5, 3});
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}}, {1, 3});
    const bool inside = mesh.coordinate_of(world.rank()).has_value();
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)}).requires_grad_();
    const at::Tensor w = randn({3, 4}, mesh, {Shard(1)}, at::kDouble).requires_grad_();
    EXPECT_EQ(to_string(spec_of(x)), "f64[5, 3] on (a=2) over [1, 3] as [S(0)]");
    EXPECT_EQ(to_local(x.detach()).numel() > 0, inside);
    const at::Tensor y = at::mm(x, w).relu();
    EXPECT_EQ(y.sizes(), at::IntArrayRef({5, 4}));
    const at::Tensor z = redistribute(y, {Replicate()}).slice(0, 1, 4).t().clone();
    EXPECT_EQ(z.sizes(), at::IntArrayRef({4, 3}));
    z.mul_(2);
    z[1].fill_(3);
    z.sum().backward();
    ASSERT_TRUE(x.grad().defined());
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    EXPECT_TRUE(is_dtensor(x.grad()));
    full_tensor(x.detach());
    EXPECT_EQ(contains(to_string(x), "this rank holds nothing"), !inside);
    for (const at::Tensor& made :
         {zeros({5}, mesh, {Shard(0)}), eye(3, 3, mesh, {Shard(0)}),
          arange(0, 5, 1, mesh, {Shard(0)}), full({2}, 1, mesh, {Partial()}),
          randint(0, 5, {4}, mesh, {Replicate()}), empty({4}, mesh, {Shard(0)})}) {
      EXPECT_EQ(to_local(made).numel() > 0, inside);
    }
    FromLocalOptions options;
    options.shape = Shape{4};
    const at::Tensor made = from_local(at::ones({2}), mesh, {Shard(0)}, options);
    EXPECT_EQ(made.sizes(), at::IntArrayRef({4}));
    const auto [values, order] = x.detach().sort(0);
    EXPECT_EQ(order.scalar_type(), at::kLong);
    EXPECT_EQ(at::dropout(x, 0.5, true).sizes(), x.sizes());
    EXPECT_EQ(at::cat({x, x}).sizes(), at::IntArrayRef({10, 3}));
    EXPECT_EQ(x.detach().clone().t_().sizes(), at::IntArrayRef({3, 5}));
    EXPECT_EQ(x.view({15}).sizes(), at::IntArrayRef({15}));
    EXPECT_EQ(x.unbind(0).size(), 5u);
    at::Tensor out = zeros({5, 3}, mesh, {Shard(0)}, at::kDouble);
    at::add_out(out, x.detach(), x.detach());
    if (inside) {
      EXPECT_EQ(difference(full_tensor(out), plain * 2), "");
    }
  });
}

TEST(Outside, ReadingANumberIsRefusedClearly) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}}, {0, 2});
    const at::Tensor x = ones({4}, mesh, {Shard(0)});
    if (mesh.coordinate_of(world.rank())) {
      EXPECT_EQ(x.sum().item<float>(), 4.0f);
      return;
    }
    const std::string text = error_of([&] { x.sum().item<float>(); });
    EXPECT_TRUE(contains(text, "outside of the mesh")) << text;
    EXPECT_TRUE(contains(error_of([&] { at::nonzero(x); }), "outside of the mesh"));
  });
}

TEST(Outside, FromLocalMustSayTheShape) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 1}}, {0});
    if (world.rank() == 1) {
      EXPECT_TRUE(contains(error_of([&] { from_local(at::ones({2}), mesh, {Shard(0)}); }),
                           "FromLocalOptions::shape"));
    }
  });
}

TEST(Outside, DrawsOfSomeRanksLeaveTheOthersInStep) {
  run_impatient(3, [](World& world) {
    const DeviceMesh some = world.mesh({{"a", 2}}, {0, 1});
    const at::Tensor x = rand({4}, some, {Shard(0)});
    x.normal_();
    at::bernoulli(x.sigmoid());
    at::multinomial(x.abs(), 2);
    x.clone().exponential_();
    const at::Tensor mine = to_local(rand({4}, usual_mesh(world), {Replicate()}));
    const at::Tensor all = world.group().all_gather(mine.unsqueeze(0), 0);
    EXPECT_TRUE(at::equal(all, mine.expand({3, 4})));
  });
}

TEST(Outside, LocalMapCannotKnowShapes) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}}, {0, 1});
    const at::Tensor x = ones({4}, mesh, {Shard(0)});
    const auto doubled = [&] {
      return local_map([](const Tensors& locals) -> Tensors { return {locals[0] * 2}; }, {x},
                       {{Shard(0)}});
    };
    if (world.rank() == 2) {
      EXPECT_THROW(doubled(), UsageError);
    } else {
      EXPECT_TRUE(is_dtensor(doubled()[0]));
    }
  });
}

// --- a mesh and its parts

TEST(SubMesh, ItsTensorsMeetThoseOfTheMesh) {
  const at::Tensor plain = numbers({5, 3});
  const at::Tensor other = numbers({3, 4}, 2);
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0), Shard(1)});
    for (const char* axis : {"a", "b"}) {
      for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1)),
                                         Placement(Replicate()), Placement(Partial())}) {
        const at::Tensor w =
            distribute_tensor(other, mesh[axis], {placement}, {std::nullopt, {}}).requires_grad_();
        const at::Tensor y = at::mm(x, w);
        EXPECT_TRUE(mesh_of(y) == mesh);
        EXPECT_EQ(difference(full_tensor(y.detach()), plain.mm(other)), "");
        y.sum().backward();
        const at::Tensor want = leaf({3, 4}, 2);
        plain.mm(want).sum().backward();
        EXPECT_TRUE(mesh_of(w.grad()) == mesh[axis]);
        EXPECT_EQ(difference(full_tensor(w.grad()), want.grad()), "");
      }
    }
  });
}

TEST(SubMesh, AFlattenedMeshMeetsTheMesh) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(numbers({5}), mesh, {Shard(0), Replicate()});
    const at::Tensor y = distribute_tensor(numbers({5}, 2), mesh.flatten("all"), {Shard(0)});
    EXPECT_EQ(difference(full_tensor(x + y), numbers({5}) + numbers({5}, 2)), "");
  });
}

TEST(SubMesh, MeshesThatDoNotCoverEachOtherAreRefused) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4}, mesh["a"], {Shard(0)});
    const at::Tensor y = ones({4}, mesh["b"], {Shard(0)});
    const std::string text = error_of([&] { x + y; });
    EXPECT_TRUE(contains(text, "do not cover each other")) << text;
    EXPECT_TRUE(contains(text, "redistribute")) << text;
    const at::Tensor z = ones({4}, world.mesh({{"c", 4}}), {Shard(0)});
    EXPECT_TRUE(contains(error_of([&] { x + z; }), "do not cover each other"));
  });
}

TEST(SubMesh, AnInPlaceOpKeepsTheMeshOfSelf) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4}, mesh, {Shard(0), Replicate()});
    const at::Tensor w = ones({4}, mesh["b"], {Shard(0)});
    x.add_(w);
    EXPECT_EQ(difference(full_tensor(x), at::full({4}, 2.0f)), "");
    w.add_(x);
    EXPECT_TRUE(mesh_of(w) == mesh["b"]);
    EXPECT_EQ(difference(full_tensor(w), at::full({4}, 3.0f)), "");
  });
}

// --- paranoia

// Nothing is checked where it is made, so that it is found where it is used.
FromLocalOptions unchecked() {
  FromLocalOptions options;
  options.check = false;
  return options;
}

TEST(Paranoia, AReplicaThatDiffersIsNamed) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  expect_in_all(errors_of(3,
                          [](World& world) {
                            const at::Tensor x =
                                from_local(at::full({2}, world.rank() == 1 ? 5.0 : 1.0),
                                           usual_mesh(world), {Replicate()}, unchecked());
                            x + 1;
                          }),
                {"different values", "aten::add", "f32[2] on (a=3) as [R]",
                 "[1] differ from rank 0", "axis    a"});
}

TEST(Paranoia, APlainTensorThatDiffersIsNamed) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  expect_in_all(errors_of(3,
                          [](World& world) {
                            const at::Tensor x = ones({2}, usual_mesh(world), {Shard(0)});
                            const ImplicitReplication guard;
                            x + at::full({2}, world.rank());
                          }),
                {"different values", "plain", "[1, 2] differ from rank 0"});
}

TEST(Paranoia, AReplicaAlongOneAxisThatDiffersIsNamed) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  const std::vector<std::string> texts = errors_of(4, [](World& world) {
    const at::Tensor x = from_local(at::full({2}, world.rank() == 3 ? 5.0 : 1.0), usual_mesh(world),
                                    {Shard(0), Replicate()});
    x + 1;
  });
  for (const std::size_t rank : {2, 3}) {
    EXPECT_TRUE(contains(texts[rank], "[3] differ from rank 2")) << texts[rank];
  }
}

TEST(Paranoia, RightProgramsPass) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  expect_as_plain({leaf({5, 3}), leaf({3, 4}, 2)}, [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::matmul(in[0], in[1]).softmax(-1);
    const at::Tensor z = y.slice(0, 1, 4).clone();
    z[1].fill_(2);
    return {y, z, y.sum(0).t()};
  });
}

TEST(Paranoia, ASampleIsSpreadEvenly) {
  const EnvironmentVariable checked("TEGULA_CHECK", "0.25");
  run_impatient(2, [](World& world) {
    const at::Tensor x =
        from_local(at::full({2}, world.rank()), usual_mesh(world), {Replicate()}, unchecked());
    int thrown = 0;
    for (int i = 0; i < 16; ++i) {
      if (error_of([&] { x + 1; }) != "nothing was thrown") ++thrown;
    }
    EXPECT_EQ(thrown, 4);
  });
}

TEST(Paranoia, ASampleBeginsAnewAfterARecovery) {
  const EnvironmentVariable checked("TEGULA_CHECK", "0.25");
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(at::ones({2}), usual_mesh(world), {Replicate()});
    const auto ops = [&](int count) {
      for (int i = 0; i < count; ++i) x + 1;
    };
    world.recover();
    ops(2 * world.rank());  // fewer than are looked at once
    world.recover();
    EXPECT_EQ(error_of([&] { ops(8); }), "nothing was thrown");
  });
}

}  // namespace api_test
}  // namespace tegula
