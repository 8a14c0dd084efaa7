#include "tegula/spec/slices.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"
#include "tests/spec/reference.h"

namespace tegula {
namespace slices_test {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr int kSpecs = 8000;

// Tensors of one to three dims on meshes of one to three axes, roots and others, any order, any
// cut.
void for_each_spec(const std::function<void(Random&, const DTensorSpec&)>& visit) {
  Random random(31);
  for (int i = 0; i < kSpecs && !::testing::Test::HasFatalFailure(); ++i) {
    const DeviceMesh mesh = generated_mesh(random, 3);
    visit(random, generated_spec(random, mesh, generated_meta(random, 3, 6)));
  }
}

// What a coordinate holds of each dim, dealt out element by element.
std::vector<Piece> reference_slice(const DTensorSpec& spec, const Coordinate& at) {
  std::vector<Piece> slice;
  for (std::int64_t size : spec.shape()) slice.push_back(whole_dim(size));
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    const auto dim = static_cast<std::size_t>(entry.dim);
    std::vector<Piece> pieces{slice[dim]};
    std::size_t mine = 0;
    for (std::size_t axis : entry.axes) {
      const std::int64_t ranks = spec.mesh().axes()[axis].size;
      pieces = cut_pieces(pieces, ranks, as_shard(spec.placements()[axis])->cut());
      mine = mine * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(at[axis]);
    }
    slice[dim] = pieces[mine];
  }
  return slice;
}

TEST(SlicesLaw, EveryRankHoldsTheCrossProductOfWhatItsDimsGiveIt) {
  std::int64_t ranks = 0;
  for_each_spec([&](Random&, const DTensorSpec& spec) {
    for (const Coordinate& at : all_coordinates(spec.mesh().shape())) {
      const TensorSlice slice = slice_at(spec, at);
      const Shape shape = local_shape(spec, at);
      const std::vector<Piece> expected = reference_slice(spec, at);
      ASSERT_EQ(slice.size(), expected.size());
      for (std::size_t dim = 0; dim < slice.size(); ++dim) {
        ASSERT_EQ(slice[dim], intervals_of(expected[dim])) << spec;
        ASSERT_EQ(shape[dim], expected[dim].size()) << spec;
      }
      ASSERT_EQ(local_stride(spec, at), dense_strides_like(shape, spec.meta().stride())) << spec;
      ++ranks;
    }
  });
  EXPECT_GT(ranks, 30'000);
}

TEST(SlicesLaw, SlicesPartitionTheTensorForEachCoordinateOfTheAxesThatDoNotCut) {
  std::int64_t elements = 0;
  for_each_spec([&](Random&, const DTensorSpec& spec) {
    std::map<Coordinate, std::map<Coordinate, int>>
        holders;  // replica -> element -> how many hold it
    for (const Coordinate& at : all_coordinates(spec.mesh().shape())) {
      Coordinate replica = at;
      for (std::size_t axis = 0; axis < at.size(); ++axis) {
        if (as_shard(spec.placements()[axis]) != nullptr) replica[axis] = 0;
      }
      std::vector<Coordinate> held{{}};
      for (const std::vector<Interval>& intervals : slice_at(spec, at)) {
        std::vector<Coordinate> longer;
        for (const Coordinate& element : held) {
          for (const Interval& interval : intervals) {
            for (std::int64_t i = interval.begin; i < interval.end(); ++i) {
              longer.push_back(element);
              longer.back().push_back(i);
            }
          }
        }
        held = std::move(longer);
      }
      auto& counts = holders[replica];
      for (const Coordinate& element : held) ++counts[element];
    }
    for (const auto& [replica, counts] : holders) {
      ASSERT_EQ(static_cast<std::int64_t>(counts.size()), spec.meta().numel()) << spec;
      for (const auto& [element, count] : counts) ASSERT_EQ(count, 1) << spec;
      elements += spec.meta().numel();
    }
  });
  EXPECT_GT(elements, 50'000);
}

// The cross product of what each dim's piece holds of the box.
std::vector<OwnedBox> boxes_of_rank(const std::vector<Piece>& slice, const Box& box,
                                    std::int64_t rank) {
  std::vector<OwnedBox> boxes{{rank, {}, {}}};
  for (std::size_t dim = 0; dim < slice.size(); ++dim) {
    std::vector<OwnedBox> longer;
    for (const OwnedBox& before : boxes) {
      for (const Share& share : shares_of(slice[dim], 0, box[dim])) {
        longer.push_back(before);
        longer.back().whole.push_back(share.whole);
        longer.back().local_begin.push_back(share.local_begin);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

TEST(SlicesLaw, OwnersOfABoxAreAllRanksOfTheFiberThatHoldSomeOfIt) {
  std::int64_t owned = 0;
  std::int64_t fibers = 0;
  for_each_spec([&](Random& random, const DTensorSpec& spec) {
    Box box;
    for (std::int64_t size : spec.shape()) {
      box.push_back(random.one_in(3)
                        ? Interval{0, size}
                        : Interval{random.between(-1, size), random.between(0, size + 1)});
    }
    const std::int64_t fiber = random.between(0, spec.mesh().fiber_count() - 1);
    std::vector<OwnedBox> expected;
    for (const Coordinate& at : all_coordinates(spec.mesh().shape())) {
      const std::vector<OwnedBox> boxes =
          boxes_of_rank(reference_slice(spec, at), box, spec.mesh().rank_at(at, fiber));
      expected.insert(expected.end(), boxes.begin(), boxes.end());
    }
    ASSERT_EQ(owners(spec, box, fiber), expected) << spec;
    owned += static_cast<std::int64_t>(expected.size());
    fibers += fiber > 0 ? 1 : 0;
  });
  EXPECT_GT(owned, 10'000);
  EXPECT_GT(fibers, 100);
}

TEST(SlicesLaw, TheWholeShapeOfEqualEvenShardsIsTheTensorsShape) {
  Random random(32);
  int cases = 0;
  for (int i = 0; i < 2000; ++i) {
    const DeviceMesh mesh = generated_mesh(random, 4);
    Shape local(static_cast<std::size_t>(random.between(1, 3)));
    for (std::int64_t& size : local) size = random.between(0, 4);
    const auto ndim = static_cast<std::int64_t>(local.size());
    Placements placements = generated_placements(random, mesh.ndim(), ndim);
    for (Placement& placement : placements) {
      const Shard* shard = as_shard(placement);
      if (shard != nullptr && random.one_in(3)) placement = Shard(shard->dim() - ndim);
    }
    const Shape whole = whole_shape(local, mesh, placements);
    const DTensorSpec spec(mesh, placements, TensorMeta(whole, DType::F32));
    for (const Coordinate& at : all_coordinates(mesh.shape())) {
      ASSERT_EQ(local_shape(spec, at), local) << spec;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 2000);
}

// "2@0 1@4": size and offset of dim 0 per coordinate.
std::string layout_of(const std::string& text) {
  const DTensorSpec spec = parse_spec(text);
  std::string result;
  for (const Coordinate& at : all_coordinates(spec.mesh().shape())) {
    if (!result.empty()) result += " ";
    result += std::to_string(local_shape(spec, at)[0]) + "@" +
              std::to_string(slice_at(spec, at)[0][0].begin);
  }
  return result;
}

TEST(Slices, AgreeWithPyTorchsLayouts) {
  EXPECT_EQ(layout_of("f32[5] on (a=4) as [S(0)]"), "2@0 2@2 1@4 0@5");
  EXPECT_EQ(layout_of("f32[1] on (a=4) as [S(0)]"), "1@0 0@1 0@1 0@1");
  EXPECT_EQ(layout_of("f32[10] on (a=2, b=2) as [S(0), S(0)]"), "3@0 2@3 3@5 2@8");
  EXPECT_EQ(layout_of("f32[9] on (a=2, b=2) as [S(0), S(0)]"), "3@0 2@3 2@5 2@7");
  EXPECT_EQ(layout_of("f32[3] on (a=2, b=2) as [S(0), S(0)]"), "1@0 1@1 1@2 0@3");
  EXPECT_EQ(layout_of("f32[9] on (a=4) as [S(0, blocks=2)]"), "3@0 3@2 2@4 1@8");
  EXPECT_EQ(layout_of("f32[8] on (a=2, b=2) as [S(0)[1], S(0)[0]]"), "2@0 2@4 2@2 2@6");
  EXPECT_EQ(layout_of("f32[9] on (a=2, b=2) as [S(0)[1], S(0)[0]]"), "3@0 2@5 2@3 2@7");
}

TEST(Slices, ARankHoldsItsChunkOfEveryBlock) {
  const DTensorSpec spec = parse_spec("f32[9] on (a=4) as [S(0, blocks=2)]");
  EXPECT_EQ(to_string(slice_at(spec, {0})[0]), "0:2, 5:6");
  EXPECT_EQ(to_string(slice_at(spec, {1})[0]), "2:4, 6:7");
  EXPECT_EQ(to_string(slice_at(spec, {2})[0]), "4:5, 7:8");
  EXPECT_EQ(to_string(slice_at(spec, {3})[0]), "8:9");
}

TEST(Slices, ItMattersWhichAxisCutsFirst) {
  const DTensorSpec mesh_order = parse_spec("f32[10, 7] on (a=2, b=2) as [S(0), S(0)]");
  const DTensorSpec b_first = parse_spec("f32[10, 7] on (a=2, b=2) as [S(0)[1], S(0)[0]]");
  EXPECT_EQ(to_string(slice_at(mesh_order, {0, 1})[0]), "3:5");
  EXPECT_EQ(to_string(slice_at(b_first, {0, 1})[0]), "5:8");
}

TEST(Slices, LocalStridesKeepTheOrderInMemoryOfTheWhole) {
  const DTensorSpec spec = parse_spec("f32[4, 8, 4] strides [32, 1, 8] on (a=2) as [S(2)]");
  EXPECT_EQ(local_shape(spec, {0}), (Shape{4, 8, 2}));
  EXPECT_EQ(local_stride(spec, {0}), (Shape{16, 1, 8}));
}

TEST(Slices, ATensorWithoutDimsIsHeldByAllRanks) {
  const DTensorSpec spec = parse_spec("f32[] on (a=2) over [7, 3] as [P(sum)]");
  EXPECT_TRUE(slice_at(spec, {1}).empty());
  EXPECT_EQ(owners(spec, {}), (std::vector<OwnedBox>{{7, {}, {}}, {3, {}, {}}}));
}

TEST(Slices, AWrongCoordinateIsRefused) {
  const DTensorSpec spec = parse_spec("f32[8] on (a=2) as [S(0)]");
  EXPECT_EQ(usage_error_of([&] { slice_at(spec, {2}); }),
            "tegula: the mesh has no place [2]\n"
            "  mesh    (a=2)\n"
            "  fibers  1\n"
            "  hint    give one coordinate per axis, from 0 to its size - 1");
  for (const Coordinate& at : {Coordinate{}, Coordinate{-1}, Coordinate{kMost}, Coordinate{0, 0}}) {
    EXPECT_THROW(slice_at(spec, at), UsageError);
    EXPECT_THROW(local_shape(spec, at), UsageError);
    EXPECT_THROW(local_stride(spec, at), UsageError);
  }
}

TEST(Slices, ABoxNeedsOneIntervalPerDim) {
  const DTensorSpec spec = parse_spec("f32[8, 6] on (a=2) as [S(0)]");
  EXPECT_EQ(usage_error_of([&] { owners(spec, {{0, 1}}); }),
            "tegula: a box with 1 interval is no part of a tensor with 2 dims\n"
            "  spec    f32[8, 6] on (a=2) as [S(0)]\n"
            "  hint    give one interval per dim");
  EXPECT_THROW(owners(spec, {{0, 8}, {0, 6}}, 1), UsageError);
  EXPECT_EQ(owners(spec, {{7, kMost}, {5, kMost}}),
            (std::vector<OwnedBox>{{1, {{7, 1}, {5, 1}}, {3, 5}}}));
}

TEST(Slices, AWholeShapeThatCannotBeToldIsRefused) {
  const DeviceMesh mesh({{"a", 2}, {"b", 2}});
  EXPECT_EQ(usage_error_of([&] { whole_shape({8}, mesh, {Shard(0), Shard(1)}); }),
            "tegula: cannot tell the whole shape: a shard dim is out of range\n"
            "  local   [8]\n"
            "  mesh    (a=2, b=2)\n"
            "  as      [S(0), S(1)]\n"
            "  hint    give one placement per axis, with shard dims that the tensor has");
  EXPECT_EQ(usage_error_of([&] { whole_shape({8}, mesh, {Shard(0)}); }),
            "tegula: cannot tell the whole shape: there is not one placement per axis\n"
            "  local   [8]\n"
            "  mesh    (a=2, b=2)\n"
            "  as      [S(0)]\n"
            "  hint    give one placement per axis, with shard dims that the tensor has");
  EXPECT_EQ(usage_error_of([&] { whole_shape({kMost}, mesh, {Shard(0), Replicate()}); }),
            "tegula: cannot tell the whole shape: it is too large\n"
            "  local   [9223372036854775807]\n"
            "  mesh    (a=2, b=2)\n"
            "  as      [S(0), R]\n"
            "  hint    give one placement per axis, with shard dims that the tensor has");
  EXPECT_THROW(whole_shape({8}, mesh, {Shard(-2), Replicate()}), UsageError);
  EXPECT_THROW(whole_shape({}, mesh, {Shard(0), Replicate()}), UsageError);
}

TEST(Slices, TheGreatestTensorsAreCutWithoutOverflow) {
  const DTensorSpec spec =
      parse_spec("u8[9223372036854775807] on (a=2, b=3) as [S(0, blocks=2), S(0, blocks=3)]");
  std::int64_t total = 0;
  for (const Coordinate& at : all_coordinates({2, 3})) {
    std::int64_t held = 0;
    const TensorSlice slice = slice_at(spec, at);
    for (const Interval& interval : slice[0]) held += interval.size;
    EXPECT_EQ(held, local_shape(spec, at)[0]);
    total += held;
  }
  EXPECT_EQ(total, kMost);
  EXPECT_EQ(owners(spec, {{kMost - 1, kMost}}).size(), 1U);
}

}  // namespace slices_test
}  // namespace tegula
