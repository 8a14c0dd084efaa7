#include "tegula/spec/dtensor_spec.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <sstream>
#include <thread>
#include <unordered_set>

#include "tegula/spec/strided_shard.h"
#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"

namespace tegula {
namespace dtensor_spec_test {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

const DeviceMesh& two_axes() {
  static const DeviceMesh mesh({{"dp", 2}, {"tp", 4}});
  return mesh;
}

TensorMeta matrix() { return {{8, 16}, DType::F32}; }

DTensorSpec any_spec(Random& random) {
  const DeviceMesh mesh = generated_mesh(random, 4);
  return generated_spec(random, mesh, generated_meta(random, 3, 9));
}

TEST(DTensorSpecLaw, WhatIsPrintedReadsBackAsTheSameObject) {
  Random random(51);
  std::set<std::string> texts;
  int ordered = 0;
  int sub_meshes = 0;
  int special_cuts = 0;
  int strided = 0;
  for (int i = 0; i < 5000; ++i) {
    const DTensorSpec spec = any_spec(random);
    const std::string text = to_string(spec);
    const DTensorSpec back = parse_spec(text);
    ASSERT_EQ(back, spec) << text << " reads as " << back;
    ASSERT_EQ(back.id(), spec.id()) << text;
    texts.insert(text);
    ordered += spec.has_default_order() ? 0 : 1;
    sub_meshes += spec.mesh().is_root() ? 0 : 1;
    special_cuts += text.find("blocks") != text.npos || text.find("sizes") != text.npos ? 1 : 0;
    strided += text.find("strides") != text.npos ? 1 : 0;
  }
  EXPECT_GT(texts.size(), 4000U);
  EXPECT_GT(ordered, 300);
  EXPECT_GT(sub_meshes, 1000);
  EXPECT_GT(special_cuts, 1000);
  EXPECT_GT(strided, 1000);
}

TEST(DTensorSpecLaw, SpecsAreTheSameObjectIfAndOnlyIfTheirPartsAreEqual) {
  Random random(52);
  std::vector<std::pair<DTensorSpec, std::string>> specs;
  for (int i = 0; i < 400; ++i) {
    const DeviceMesh mesh({{"a", random.between(1, 2)}, {"b", 2}});
    const DTensorSpec spec = generated_spec(random, mesh, {{random.between(3, 4)}, DType::F32});
    specs.emplace_back(spec, to_string(spec));
  }
  int equal = 0;
  int different = 0;
  for (const auto& [a, a_text] : specs) {
    for (const auto& [b, b_text] : specs) {
      const bool same_parts = a.mesh() == b.mesh() && a.placements() == b.placements() &&
                              a.shard_order() == b.shard_order() && a.meta() == b.meta();
      ASSERT_EQ(a == b, same_parts) << a_text << " and " << b_text;
      ASSERT_EQ(a.id() == b.id(), same_parts) << a_text << " and " << b_text;
      ASSERT_EQ(a.hash() == b.hash(), same_parts) << a_text << " and " << b_text;
      ASSERT_EQ(a_text == b_text, same_parts) << a_text << " and " << b_text;
      ++(same_parts ? equal : different);
    }
  }
  EXPECT_GT(equal, 1000);
  EXPECT_GT(different, 50'000);
}

TEST(DTensorSpecLaw, MakingASpecFromItsOwnPartsGivesItself) {
  Random random(53);
  int in_default_order = 0;
  for (int i = 0; i < 2000; ++i) {
    const DTensorSpec spec = any_spec(random);
    ASSERT_EQ(DTensorSpec(spec.mesh(), spec.placements(), spec.shard_order(), spec.meta()), spec)
        << spec;
    ASSERT_EQ(spec.with_meta(spec.meta()), spec) << spec;
    if (spec.has_default_order()) {
      ASSERT_EQ(spec.with_placements(spec.placements()), spec) << spec;
      ++in_default_order;
    }
    for (const Placement& placement : spec.placements()) {
      ASSERT_TRUE(as_shard(placement) == nullptr || as_shard(placement)->dim() >= 0) << spec;
    }
  }
  EXPECT_GT(in_default_order, 1000);
}

TEST(DTensorSpecLaw, EverySpecIsFreedWithItsLastReference) {
  const std::size_t before = interned_spec_count();
  Random random(54);
  {
    std::vector<DTensorSpec> specs;
    for (int i = 0; i < 500; ++i) specs.push_back(any_spec(random));
    std::unordered_set<DTensorSpec> different(specs.begin(), specs.end());
    EXPECT_EQ(interned_spec_count(), before + different.size());
    EXPECT_GT(different.size(), 400U);
    random.shuffle(specs);
    specs.resize(250, specs.front());
    different.clear();
    different.insert(specs.begin(), specs.end());
    EXPECT_EQ(interned_spec_count(), before + different.size());
  }
  EXPECT_EQ(interned_spec_count(), before);
}

TEST(DTensorSpecLaw, ADamagedTextIsASpecOrAUsageError) {
  Random random(55);
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) texts.push_back(to_string(any_spec(random)));
  texts.emplace_back("f32[9] on (a=2, b=2) as [_S(0, 2), S(0)]");
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = damaged(random, random.pick(texts));
    try {
      const DTensorSpec spec = parse_spec(text);
      ASSERT_EQ(parse_spec(to_string(spec)), spec) << text;
      ++read;
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 5000);
}

TEST(DTensorSpecLaw, ADamagedMeshIsAMeshOrAUsageError) {
  Random random(56);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = damaged(random, to_string(generated_mesh(random, 4)));
    try {
      const DeviceMesh mesh = parse_mesh(text);
      ASSERT_EQ(parse_mesh(to_string(mesh)), mesh) << text;
      ++read;
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 5000);
}

// Threads make, copy, compare and drop specs, some that all threads make and some of their own.
TEST(DTensorSpecLaw, ThreadsThatMakeAndDropTheSameSpecsSeeOneObjectEach) {
  const std::size_t before = interned_spec_count();
  constexpr int kThreads = 8;
  constexpr int kRounds = 500;
  std::vector<int> checked(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread, &checked] {
      Random random(static_cast<std::uint64_t>(thread));
      std::vector<DTensorSpec> kept;
      for (int round = 0; round < kRounds; ++round) {
        const TensorMeta shared({random.between(1, 4), 8}, DType::F32);
        const DTensorSpec a(two_axes(), {Shard(0), Shard(1)}, shared);
        const DTensorSpec b(two_axes(), {Shard(-2), Shard(-1)}, shared);
        const DTensorSpec own(two_axes(), {Shard(0), Partial()},
                              {{thread + 10, round}, DType::F32});
        DTensorSpec copy = a;
        copy = own;
        const bool right =
            a == b && a.id() == b.id() && !(a == own) && copy == own && a.meta() == shared;
        checked[static_cast<std::size_t>(thread)] += right ? 1 : 0;
        kept.push_back(random.one_in(2) ? a : own);
        if (random.one_in(8)) kept.clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(checked, std::vector<int>(kThreads, kRounds));
  EXPECT_EQ(interned_spec_count(), before);
}

// Readers share one spec while others let go of it.
TEST(DTensorSpec, MayBeCopiedAndDroppedByManyThreadsAtOnce) {
  const std::size_t before = interned_spec_count();
  {
    const DTensorSpec spec(two_axes(), {Replicate(), Shard(0)}, matrix());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([spec] {
        for (int round = 0; round < 2000; ++round) {
          const DTensorSpec copy = spec;
          ASSERT_EQ(copy.id(), spec.id());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(interned_spec_count(), before + 1);
  }
  EXPECT_EQ(interned_spec_count(), before);
}

TEST(DTensorSpec, IsWrittenAsTensorMeshAndPlacements) {
  const DTensorSpec spec(two_axes(), {Replicate(), Shard(0)}, matrix());
  EXPECT_EQ(to_string(spec), "f32[8, 16] on (dp=2, tp=4) as [R, S(0)]");
  std::ostringstream out;
  out << DTensorSpec(two_axes()["tp"], {Partial(ReduceOp::Max)}, {{3}, {0}, DType::BF16});
  EXPECT_EQ(out.str(), "bf16[3] strides [0] on (tp=4) of (dp=2, tp=4) as [P(max)]");
}

TEST(DTensorSpec, NumbersTheAxesThatCutADimOutOfOrder) {
  const DeviceMesh mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  const DTensorSpec spec(mesh, {Shard(0), Shard(1), Shard(0)}, {{0, {2, 0}}, {1, {1}}},
                         {{10, 7}, DType::F32});
  EXPECT_EQ(to_string(spec), "f32[10, 7] on (a=2, b=2, c=2) as [S(0)[1], S(1), S(0)[0]]");
  EXPECT_FALSE(spec.has_default_order());
  EXPECT_EQ(parse_spec("f32[10, 7] on a=2, b=2, c=2 as [S(0)[0], S(1)[0], S(-2)[1]]"),
            DTensorSpec(mesh, {Shard(0), Shard(1), Shard(0)}, {{10, 7}, DType::F32}));
}

TEST(DTensorSpec, IsStoredInSimplestForm) {
  const DTensorSpec plain(two_axes(), {Replicate(), Shard(1)}, matrix());
  EXPECT_EQ(DTensorSpec(two_axes(), {Replicate(), Shard(-1)}, matrix()), plain);
  EXPECT_EQ(DTensorSpec(two_axes(), {Replicate(), Shard(1, Cut::ragged({4, 4, 4, 4}))}, matrix()),
            plain);
  EXPECT_EQ(DTensorSpec(two_axes(), {Replicate(), Shard(-1, Cut({1}, {{4, 4, 4, 4}}))}, matrix()),
            plain);
  EXPECT_TRUE(as_shard(plain.placements()[1])->cut().is_even());
  const DTensorSpec ragged(two_axes(), {Replicate(), Shard(1, Cut::ragged({4, 4, 3, 5}))},
                           matrix());
  EXPECT_FALSE(ragged == plain);
  EXPECT_EQ(to_string(ragged), "f32[8, 16] on (dp=2, tp=4) as [R, S(1, sizes=[4, 4, 3, 5])]");
  EXPECT_EQ(DTensorSpec(two_axes(), {Shard(0), Shard(1)}, {{0, {0}}, {1, {1}}}, matrix()),
            DTensorSpec(two_axes(), {Shard(0), Shard(1)}, matrix()));
}

TEST(DTensorSpec, DiffersInEachOfItsParts) {
  const DTensorSpec spec(two_axes(), {Shard(0), Shard(0)}, matrix());
  const std::vector<DTensorSpec> others = {
      {two_axes(), {Shard(0), Shard(1)}, matrix()},
      {two_axes(), {Shard(0), Shard(0)}, {{0, {1, 0}}}, matrix()},
      {two_axes(), {Shard(0), Shard(0)}, {{8, 16}, DType::F64}},
      {two_axes(), {Shard(0), Shard(0)}, {{8, 16}, {1, 8}, DType::F32}},
      {DeviceMesh({{"dp", 2}, {"pp", 4}}), {Shard(0), Shard(0)}, matrix()},
      {DeviceMesh({{"dp", 2}, {"tp", 4}}, {}, "cuda"), {Shard(0), Shard(0)}, matrix()},
      {two_axes()[{"tp", "dp"}], {Shard(0), Shard(0)}, matrix()}};
  std::set<std::uint64_t> ids{spec.id()};
  std::set<std::size_t> hashes{spec.hash()};
  for (const DTensorSpec& other : others) {
    EXPECT_FALSE(spec == other) << other;
    ids.insert(other.id());
    hashes.insert(other.hash());
  }
  EXPECT_EQ(ids.size(), 8U);
  EXPECT_EQ(hashes.size(), 8U);
}

TEST(DTensorSpec, NeverUsesAnIdAgain) {
  const auto make = [] {
    return DTensorSpec(two_axes(), {Partial(), Partial()}, {{5, 5}, DType::I8}).id();
  };
  const std::uint64_t first = make();
  EXPECT_GT(make(), first);
}

TEST(DTensorSpec, MovesAndAssignsWithoutLosingCount) {
  const std::size_t before = interned_spec_count();
  {
    DTensorSpec a(two_axes(), {Shard(0), Replicate()}, matrix());
    DTensorSpec b(two_axes(), {Shard(1), Replicate()}, matrix());
    const std::uint64_t id = a.id();
    b = a;
    EXPECT_EQ(interned_spec_count(), before + 1);
    const DTensorSpec& same = b;
    b = same;
    EXPECT_EQ(b.id(), id);
    DTensorSpec c = std::move(a);
    a = std::move(c);
    EXPECT_EQ(a.id(), id);
  }
  EXPECT_EQ(interned_spec_count(), before);
}

TEST(DTensorSpec, AMistakeLeavesNothingBehind) {
  const std::size_t before = interned_spec_count();
  EXPECT_THROW(DTensorSpec(two_axes(), {Shard(7), Replicate()}, matrix()), UsageError);
  EXPECT_THROW(parse_spec("f32[8] on (a=2) as [S(0, sizes=[1, 2])]"), UsageError);
  EXPECT_EQ(interned_spec_count(), before);
}

TEST(DTensorSpec, TellsWhatItsPlacementsDo) {
  const DTensorSpec replicated(two_axes(), {Replicate(), Replicate()}, matrix());
  EXPECT_TRUE(replicated.is_replicated());
  EXPECT_FALSE(replicated.is_sharded() || replicated.is_partial());
  const DTensorSpec mixed(two_axes(), {Shard(1), MaskPartial(9)}, matrix());
  EXPECT_FALSE(mixed.is_replicated());
  EXPECT_TRUE(mixed.is_sharded() && mixed.is_partial());
  EXPECT_EQ(mixed.ndim(), 2);
  EXPECT_EQ(mixed.shape(), (Shape{8, 16}));
  EXPECT_EQ(mixed.dim_cuts()[0], DimCut(8));
  EXPECT_EQ(mixed.dim_cuts()[1], DimCut(16, {{0, 2, Cut()}}));
}

TEST(DTensorSpec, AChangedShapeMustFitThePlacements) {
  const DTensorSpec spec(two_axes(), {Replicate(), Shard(0, Cut::ragged({1, 2, 2, 3}))}, matrix());
  EXPECT_EQ(spec.with_meta({{8, 3}, DType::F32}).placements(), spec.placements());
  EXPECT_THROW(spec.with_meta({{9, 3}, DType::F32}), UsageError);
  EXPECT_THROW(spec.with_meta({{}, DType::F32}), UsageError);
  EXPECT_EQ(spec.with_placements({Shard(0), Shard(0)}).shard_order(), (ShardOrder{{0, {0, 1}}}));
}

TEST(DTensorSpec, NeedsOnePlacementPerAxis) {
  EXPECT_EQ(usage_error_of([] { DTensorSpec(two_axes(), {Shard(0)}, matrix()); }),
            "tegula: a mesh with 2 axes cannot take 1 placement\n"
            "  spec    f32[8, 16] on (dp=2, tp=4) as [S(0)]\n"
            "  hint    give one placement per axis; R leaves an axis out");
  EXPECT_THROW(DTensorSpec(two_axes(), {}, ShardOrder{}, matrix()), UsageError);
  EXPECT_THROW(DTensorSpec(two_axes(), Placements(100'000, Replicate()), matrix()), UsageError);
}

TEST(DTensorSpec, ShardsOnlyDimsThatTheTensorHas) {
  EXPECT_EQ(usage_error_of([] { DTensorSpec(two_axes(), {Replicate(), Shard(3)}, matrix()); }),
            "tegula: cannot shard dim 3 of a tensor with 2 dims\n"
            "  spec    f32[8, 16] on (dp=2, tp=4) as [R, S(3)]\n"
            "  hint    dims are 0 ... 1, or -2 ... -1 from the end");
  EXPECT_EQ(
      usage_error_of([] { DTensorSpec(two_axes(), {Replicate(), Shard(0)}, {{}, DType::F32}); }),
      "tegula: cannot shard dim 0 of a tensor with 0 dims\n"
      "  spec    f32[] on (dp=2, tp=4) as [R, S(0)]\n"
      "  hint    a tensor without dims can only be R or P");
  for (std::int64_t dim : {kLeast, std::int64_t{-3}, std::int64_t{2}, kMost}) {
    EXPECT_THROW(DTensorSpec(two_axes(), {Replicate(), Shard(dim)}, matrix()), UsageError) << dim;
  }
}

TEST(DTensorSpec, OwesOnlyReductionsThatCanBeDoneInEitherOrder) {
  EXPECT_EQ(usage_error_of(
                [] { DTensorSpec(two_axes(), {Partial(), Partial(ReduceOp::Max)}, matrix()); }),
            "tegula: a tensor cannot owe a sum over one axis and a max over another: the value "
            "would depend "
            "on which is done first\n"
            "  spec    f32[8, 16] on (dp=2, tp=4) as [P(sum), P(max)]\n"
            "  hint    reduce one of them first");
  int accepted = 0;
  for (ReduceOp a : kReduceOps) {
    for (ReduceOp b : kReduceOps) {
      const auto make = [&] { DTensorSpec(two_axes(), {Partial(a), Partial(b)}, matrix()); };
      if (commute(a, b)) {
        EXPECT_NO_THROW(make());
        ++accepted;
      } else {
        EXPECT_THROW(make(), UsageError);
      }
    }
    const auto with_mask = [&] { DTensorSpec(two_axes(), {MaskPartial(8), Partial(a)}, matrix()); };
    if (commute(a, ReduceOp::Sum)) {
      EXPECT_NO_THROW(with_mask());
    } else {
      EXPECT_THROW(with_mask(), UsageError);
    }
  }
  EXPECT_EQ(accepted, 10);
}

TEST(DTensorSpec, TakesOnlyAnOrderThatFits) {
  EXPECT_EQ(
      usage_error_of([] { DTensorSpec(two_axes(), {Shard(0), Shard(-2)}, {{0, {1}}}, matrix()); }),
      "tegula: the shard order of dim 0 does not list the axes that cut it\n"
      "  order   {0: [1]}\n"
      "  as      [S(0), S(0)]\n"
      "  hint    list for each cut dim, by ascending dim, exactly the axes that cut it: "
      "{0: [0, 1]} is the default");
}

TEST(DTensorSpec, SizesMustAddUp) {
  EXPECT_EQ(
      usage_error_of([] { parse_spec("f32[8] on (a=2) as [S(0, sizes=[3, 4])]"); }),
      "tegula: the given shard sizes add up to 7 where 8 elements are cut\n"
      "  cut     axis 0 with 2 ranks, sizes=[3, 4]\n"
      "  hint    the sizes of all ranks, times the blocks, must add up to the size of the piece");
}

TEST(SpecText, AMisfitSaysHowASpecIsWritten) {
  EXPECT_EQ(usage_error_of([] { parse_spec("f32[8] at (a=2) as [R]"); }),
            "tegula: cannot read a spec: expected \"on\" where \"at (a=2) as \" stands\n"
            "  text    f32[8] at (a=2) as [R]\n"
            "  place   character 8\n"
            "  hint    write a spec like f32[8, 16] on (dp=2, tp=4) as [R, S(0)]");
}

TEST(SpecText, NumbersInAnOrderMustCount) {
  EXPECT_EQ(usage_error_of([] { parse_spec("f32[8] on (a=2, b=2) as [S(0)[1], S(0)[1]]"); }),
            "tegula: the order in which axes cut dim 0 is not 0, 1, 2, ...\n"
            "  as      [S(0), S(0)]\n"
            "  hint    number all axes that cut the dim, or none: [S(0)[1], S(0)[0]]");
  EXPECT_EQ(usage_error_of([] { parse_spec("f32[8] on (a=2, b=2) as [R[0], S(0)]"); }),
            "tegula: only plain shards can be numbered in the order in which they cut\n"
            "  as      [R, S(0)]\n"
            "  hint    write [S(0)[1], S(0)[0]]");
  for (const char* placements :
       {"[S(0)[1], S(0)]", "[S(0)[2], S(0)[0]]", "[S(0)[-1], S(0)[0]]", "[S(0)[1], R]",
        "[S(0)[0], S(0)]", "[S(0), S(0)[1]]", "[_S(0, 2)[1], S(0)[0]]",
        "[S(0)[9223372036854775807], S(0)[0]]"}) {
    EXPECT_THROW(parse_spec("f32[8] on (a=2, b=2) as " + std::string(placements)), UsageError)
        << placements;
  }
}

TEST(SpecText, WhatIsNoSpecIsAUsageError) {
  const std::string nested(100'000, '(');
  const std::vector<std::string> texts = {
      "",
      " ",
      "f32",
      "f32[8]",
      "f32[8] on",
      "f32[8] on (a=2)",
      "f32[8] on (a=2) as",
      "f32[8] on (a=2) as [",
      "f32[8] on (a=2) as [R",
      "f32[8] on (a=2) as []",
      "f32[8] on (a=2) as [R] x",
      "f32[8] on (a=2) as R",
      "f32[8] on (a=2) as [R, R]",
      "f32[8] on () as []",
      "f32[8] on (a=0) as [R]",
      "f32[8] on (a=-1) as [R]",
      "f32[8] on (a=2, a=2) as [R, R]",
      "f99[8] on (a=2) as [R]",
      "f32[-8] on (a=2) as [R]",
      "f32[9223372036854775807, 2] on (a=2) as [R]",
      "f32[8] on (a=9223372036854775807) as [S(0)]",
      "f32[8] on (a=16777216, b=2) as [S(0), S(0)]",
      "f32[8] on (a=2) as [S(-9223372036854775808)]",
      "f32[8] on (a=2) as [S(0, sizes=[9223372036854775807, 9223372036854775807])]",
      "f32[8] on (a=2) as [S(0, blocks=9223372036854775807, sizes=[4, 4])]",
      "f32[8] on (a=2) over [0:9223372036854775807] as [R]",
      "f32[8] on (a=2) over [0, 0] as [R]",
      "f32[8] on " + nested + " as [R]",
      "f32[8] on (a=" + nested + ") as [R]",
      "f32[8] on (a=2) as [" + std::string(100'000, '['),
      std::string(1'000'000, 'f'),
      "f32[" + std::string(1'000'000, '1') + "]",
      std::string(1000, '\0'),
      "f32[8] on (a=2) as [_S(0, 0)]",
      "f32[8] on (a=2) as [_S(-2, 3)]",
      "f32[8] on (a=2) as [_S(0, -9223372036854775808)]"};
  for (const std::string& text : texts) {
    EXPECT_THROW(parse_spec(text), UsageError) << text.substr(0, 80);
  }
}

TEST(SpecText, TheGreatestNumbersThatFitAreRead) {
  for (const char* text :
       {"u8[9223372036854775807] on (a=16777216) as [S(0)]",
        "u8[9223372036854775807] on (a=2) as [S(0, blocks=9223372036854775807)]",
        "u8[9223372036854775807] on (a=2) as [S(0, sizes=[0, 9223372036854775807])]",
        "f32[0] strides [9223372036854775807] on (a=2) over [9223372036854775806, 0] as "
        "[M(9223372036854775807)]"}) {
    EXPECT_EQ(to_string(parse_spec(text)), text);
  }
}

TEST(SpecText, ManyPlacementsAreReadInLinearTime) {
  std::string text = "f32[8] on (a=2) as [R";
  for (int i = 0; i < 200'000; ++i) text += ", R";
  EXPECT_THROW(parse_spec(text + "]"), UsageError);
}

}  // namespace dtensor_spec_test
}  // namespace tegula
