#include "tegula/spec/strided_shard.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <sstream>

#include "tegula/spec/slices.h"
#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"
#include "tests/spec/torch_layouts.h"

namespace tegula {
namespace strided_shard_test {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

void expect_same_slices(const DTensorSpec& a, const DTensorSpec& b) {
  if (::testing::Test::HasFatalFailure()) return;  // one is enough to read
  ASSERT_EQ(a.mesh(), b.mesh());
  for (const Coordinate& at : all_coordinates(a.mesh().shape())) {
    const TensorSlice slice = slice_at(a, at);
    const TensorSlice other = slice_at(b, at);
    for (std::size_t dim = 0; dim < slice.size(); ++dim) {
      if (local_shape(a, at)[dim] == 0) {
        ASSERT_EQ(local_shape(b, at)[dim], 0) << a << " and " << b;
      } else {
        ASSERT_EQ(slice[dim], other[dim]) << a << " and " << b;
      }
    }
  }
}

// All meshes of one to three axes of one to three ranks.
std::vector<DeviceMesh> small_meshes() {
  std::vector<DeviceMesh> meshes;
  for (std::size_t axes = 1; axes <= 3; ++axes) {
    for (const Coordinate& sizes : all_coordinates(std::vector<std::int64_t>(axes, 3))) {
      std::vector<MeshAxis> named;
      for (std::size_t axis = 0; axis < axes; ++axis) {
        named.push_back({std::string(1, static_cast<char>('a' + axis)), sizes[axis] + 1});
      }
      meshes.emplace_back(named);
    }
  }
  return meshes;
}

TensorMeta vector_of(std::int64_t size) { return {{size}, DType::F32}; }

TEST(StridedShardLaw, EveryOrderIsWrittenAndReadBackAsTheSameSlices) {
  int cases = 0;
  int strided = 0;
  for (const DeviceMesh& mesh : small_meshes()) {
    std::vector<std::size_t> axes(mesh.ndim());
    std::iota(axes.begin(), axes.end(), 0);
    do {
      for (std::int64_t size = 0; size <= 13; ++size) {
        const DTensorSpec spec(mesh, Placements(mesh.ndim(), Shard(0)), {{0, axes}},
                               vector_of(size));
        const TorchPlacements torch = to_torch_placements(spec);
        expect_same_slices(spec, from_torch_placements(mesh, torch, spec.meta()));
        ASSERT_EQ(parse_torch_placements(to_string(torch)), torch);
        for (const TorchPlacement& one : torch)
          strided += std::holds_alternative<StridedShard>(one) ? 1 : 0;
        ++cases;
      }
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
  EXPECT_EQ(cases, 14 * (3 + 9 * 2 + 27 * 6));
  EXPECT_GT(strided, 1000);
}

TEST(StridedShardLaw, CutsInBlocksAreReadBackAsTheSameSlicesOrRefused) {
  int converted = 0;
  int refused = 0;
  for (const DeviceMesh& mesh : small_meshes()) {
    for (const Coordinate& blocks : all_coordinates(std::vector<std::int64_t>(mesh.ndim(), 4))) {
      for (std::int64_t size = 0; size <= 13; ++size) {
        Placements placements;
        for (std::int64_t count : blocks)
          placements.emplace_back(Shard(0, Cut::in_blocks(count + 1)));
        const DTensorSpec spec(mesh, placements, vector_of(size));
        try {
          const TorchPlacements torch = to_torch_placements(spec);
          expect_same_slices(spec, from_torch_placements(mesh, torch, spec.meta()));
          ++converted;
        } catch (const UsageError&) {
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(converted, 15'000);
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, converted / 2);
}

TEST(StridedShardLaw, WhateverPyTorchWritesIsReadAndWrittenAgainAsTheSameSlices) {
  int cases = 0;
  int refused = 0;
  for (const DeviceMesh& mesh : small_meshes()) {
    for (const Coordinate& factors : all_coordinates(std::vector<std::int64_t>(mesh.ndim(), 6))) {
      TorchPlacements torch;
      for (std::int64_t factor : factors) {
        if (factor == 0) {
          torch.emplace_back(Placement(Shard(0)));
        } else {
          torch.emplace_back(StridedShard{0, factor});
        }
      }
      for (std::int64_t size : {0, 1, 7, 12}) {
        const DTensorSpec spec = from_torch_placements(mesh, torch, vector_of(size));
        // Blocks that meet no elements are dropped, and what is left may be one that PyTorch would
        // read as an order: such a spec is refused.
        try {
          const TorchPlacements again = to_torch_placements(spec);
          expect_same_slices(spec, from_torch_placements(mesh, again, spec.meta()));
          ++cases;
        } catch (const UsageError&) {
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(cases, 20'000);
  EXPECT_LT(refused, cases / 100);
}

TEST(StridedShardLaw, GeneratedSpecsAreReadBackAsTheSameSlicesOrRefused) {
  Random random(41);
  int converted = 0;
  for (int i = 0; i < 5000; ++i) {
    const DeviceMesh mesh = generated_mesh(random, 3);
    const DTensorSpec spec = generated_spec(random, mesh, generated_meta(random, 3, 9));
    bool has_cuts = false;
    for (const Placement& placement : spec.placements()) {
      has_cuts =
          has_cuts || (as_shard(placement) != nullptr && !as_shard(placement)->cut().is_even());
    }
    try {
      const DTensorSpec back = from_torch_placements(mesh, to_torch_placements(spec), spec.meta());
      expect_same_slices(spec, back);
      for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
        if (as_shard(spec.placements()[axis]) == nullptr) {
          ASSERT_EQ(back.placements()[axis], spec.placements()[axis]);
        }
      }
      ++converted;
    } catch (const UsageError&) {
      ASSERT_TRUE(has_cuts) << spec;
    }
  }
  EXPECT_GT(converted, 2500);
}

std::string interval_text(const DTensorSpec& spec, const Coordinate& at) {
  if (local_shape(spec, at)[0] == 0) return "-";
  std::string text;
  const TensorSlice slice = slice_at(spec, at);
  for (const Interval& interval : slice[0]) text += (text.empty() ? "" : "+") + to_string(interval);
  return text;
}

TEST(StridedShard, IsReadAsPyTorchReadsIt) {
  std::istringstream lines{std::string(kTorchLayouts)};
  std::string line;
  int orders = 0;
  int blocks = 0;
  while (std::getline(lines, line)) {
    std::vector<std::string> parts;
    std::istringstream fields(line);
    for (std::string part; std::getline(fields, part, ';');) parts.push_back(part);
    ASSERT_EQ(parts.size(), 5U) << line;
    const DTensorSpec spec = from_torch_placements(
        parse_mesh(parts[0]), parse_torch_placements(parts[1]), vector_of(std::stoll(parts[2])));
    std::string order;
    std::string slices;
    for (std::size_t axis : spec.shard_order()[0].axes) order += " " + std::to_string(axis);
    for (const Coordinate& at : all_coordinates(spec.mesh().shape()))
      slices += " " + interval_text(spec, at);
    if (parts[3] != " ") {
      EXPECT_EQ(order, parts[3]) << line;
      ++orders;
    } else {
      EXPECT_TRUE(spec.has_default_order()) << line;
      ++blocks;
    }
    EXPECT_EQ(slices, parts[4]) << line;
  }
  EXPECT_EQ(orders, 174);
  EXPECT_EQ(blocks, 186);
}

TEST(StridedShard, SaysWhichAxisCutsFirst) {
  const DTensorSpec b_first = parse_spec("f32[9] on (a=2, b=2) as [_S(0, 2), S(0)]");
  EXPECT_EQ(to_string(b_first), "f32[9] on (a=2, b=2) as [S(0)[1], S(0)[0]]");
  EXPECT_EQ(to_string(to_torch_placements(b_first)), "[_S(0, 2), S(0)]");
  const DTensorSpec mesh_order = parse_spec("f32[9] on (a=2, b=2) as [S(0), S(0)]");
  EXPECT_EQ(to_string(to_torch_placements(mesh_order)), "[S(0), S(0)]");
}

TEST(StridedShard, SaysInHowManyBlocksADimIsCut) {
  const DTensorSpec spec = parse_spec("f32[9] on (a=4) as [_S(-1, 2)]");
  EXPECT_EQ(to_string(spec), "f32[9] on (a=4) as [S(0, blocks=2)]");
  EXPECT_EQ(to_string(to_torch_placements(spec)), "[_S(0, 2)]");
  EXPECT_EQ(parse_spec("f32[9] on (a=4) as [_S(0, 1)]"), parse_spec("f32[9] on (a=4) as [S(0)]"));
}

TEST(StridedShard, OtherPlacementsStayAsTheyAre) {
  const DTensorSpec spec = parse_spec("f32[9] on (a=2, b=2, c=2) as [P(avg), _S(0, 3), M(10)]");
  EXPECT_EQ(to_string(to_torch_placements(spec)), "[P(avg), _S(0, 3), M(10)]");
}

TEST(StridedShard, WhatPyTorchHasNoWordsForIsRefused) {
  const auto error_for = [](const std::string& text) {
    return usage_error_of([&] { to_torch_placements(parse_spec(text)); });
  };
  EXPECT_EQ(error_for("f32[9] on (a=2) as [S(0, sizes=[2, 7])]"),
            "tegula: PyTorch's placements cannot express this spec: it has shards of given sizes\n"
            "  spec    f32[9] on (a=2) as [S(0, sizes=[2, 7])]\n"
            "  hint    redistribute to even shards first");
  EXPECT_EQ(error_for("f32[16] on (a=2, b=2) as [S(0), S(0, blocks=[2, 4])]"),
            "tegula: PyTorch's placements cannot express this spec: its blocks differ from piece "
            "to piece\n"
            "  spec    f32[16] on (a=2, b=2) as [S(0), S(0, blocks=[2, 4])]\n"
            "  hint    redistribute to even shards first");
  EXPECT_EQ(error_for("f32[16] on (a=2, b=2) as [S(0, blocks=2)[1], S(0)[0]]"),
            "tegula: PyTorch's placements cannot express this spec: it has both blocks and a shard "
            "order\n"
            "  spec    f32[16] on (a=2, b=2) as [S(0, blocks=2)[1], S(0)[0]]\n"
            "  hint    redistribute to even shards first");
  EXPECT_EQ(
      error_for("f32[7] on (a=3, b=2) as [S(0, blocks=2), S(0)]"),
      "tegula: PyTorch's placements cannot express this spec: its blocks would be read as a shard "
      "order\n"
      "  spec    f32[7] on (a=3, b=2) as [S(0, blocks=2), S(0)]\n"
      "  hint    redistribute to even shards first");
}

TEST(StridedShard, HasASplitFactorOfAtLeastOne) {
  const DeviceMesh mesh({{"a", 2}});
  EXPECT_EQ(
      usage_error_of([&] { from_torch_placements(mesh, {StridedShard{0, 0}}, vector_of(8)); }),
      "tegula: a strided shard cannot have split factor 0\n"
      "  as      [_S(0, 0)]\n"
      "  hint    split factors are 1 or more");
  EXPECT_THROW(from_torch_placements(mesh, {StridedShard{0, kLeast}}, vector_of(8)), UsageError);
  const DTensorSpec spec = from_torch_placements(mesh, {StridedShard{0, kMost}}, vector_of(8));
  EXPECT_EQ(to_string(spec), "f32[8] on (a=2) as [S(0, blocks=8)]");
}

TEST(StridedShard, AMistakeIsReportedAsForAnySpec) {
  const DeviceMesh mesh({{"a", 2}});
  EXPECT_EQ(
      usage_error_of([&] { from_torch_placements(mesh, {StridedShard{3, 2}}, vector_of(8)); }),
      "tegula: cannot shard dim 3 of a tensor with 1 dim\n"
      "  spec    f32[8] on (a=2) as [S(3, blocks=2)]\n"
      "  hint    dims are 0 ... 0, or -1 ... -1 from the end");
  EXPECT_THROW(from_torch_placements(mesh, {}, vector_of(8)), UsageError);
  EXPECT_THROW(from_torch_placements(mesh, {StridedShard{0, 2}, StridedShard{0, 2}}, vector_of(8)),
               UsageError);
  EXPECT_THROW(from_torch_placements(mesh, {StridedShard{kLeast, 2}}, vector_of(8)), UsageError);
  EXPECT_THROW(from_torch_placements(mesh, {StridedShard{kMost, 2}}, vector_of(8)), UsageError);
}

TEST(StridedShard, ADimBeyondTheFirstIsNotWrappedTwice) {
  const DeviceMesh mesh({{"a", 2}});
  const TensorMeta matrix({8, 6}, DType::F32);
  EXPECT_EQ(to_string(from_torch_placements(mesh, {StridedShard{-2, 5}}, matrix)),
            "f32[8, 6] on (a=2) as [S(0, blocks=4)]");
  for (std::int64_t dim : {-3, -4, -5, 2}) {
    EXPECT_THROW(from_torch_placements(mesh, {StridedShard{dim, 5}}, matrix), UsageError) << dim;
    EXPECT_THROW(from_torch_placements(mesh, {StridedShard{dim, 1}}, matrix), UsageError) << dim;
  }
}

TEST(StridedShard, AMisfitSaysHowPlacementsAreWritten) {
  EXPECT_EQ(usage_error_of([] { parse_torch_placements("[_S(0)]"); }),
            "tegula: cannot read PyTorch placements: expected \",\" where \")]\" stands\n"
            "  text    [_S(0)]\n"
            "  place   character 6\n"
            "  hint    write PyTorch placements like [_S(0, 2), S(0)]");
  for (const char* text :
       {"", "[", "_S(0, 2)", "[_S]", "[_S(0, 2]", "[_S(0, 2),]", "[_S(0, a)]", "[_S(0, 2)] x"}) {
    EXPECT_THROW(parse_torch_placements(text), UsageError) << text;
  }
  EXPECT_TRUE(parse_torch_placements("[]").empty());
}

}  // namespace strided_shard_test
}  // namespace tegula
