#include "tegula/plan/common_mesh.h"

#include <gtest/gtest.h>

#include "tegula/plan/redistribute_planner.h"
#include "tegula/spec/slices.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace common_mesh_test {

std::string on_one_mesh(const std::string& from, const std::string& to) {
  const std::optional<SpecPair> pair = on_common_mesh(parse_spec(from), parse_spec(to));
  return pair ? to_string(pair->from) + " -> " + to_string(pair->to) : "none";
}

// All ways to write a number as a product of factors in order, 1 included once in a while.
std::vector<std::vector<std::int64_t>> factored(std::int64_t ranks) {
  std::vector<std::vector<std::int64_t>> all{{ranks}, {1, ranks}};
  for (std::int64_t first = 2; first < ranks; ++first) {
    if (ranks % first != 0) continue;
    for (std::vector<std::int64_t> rest : factored(ranks / first)) {
      rest.insert(rest.begin(), first);
      all.push_back(rest);
    }
  }
  return all;
}

DeviceMesh mesh_with(const std::vector<std::int64_t>& sizes, const std::string& letter,
                     const std::vector<std::int64_t>& ranks) {
  std::vector<MeshAxis> axes;
  for (std::int64_t size : sizes) axes.push_back({letter + std::to_string(axes.size()), size});
  return DeviceMesh(axes, ranks);
}

std::int64_t ranks_that_owe(const DTensorSpec& spec, ReduceOp op) {
  std::int64_t ranks = 1;
  for (std::size_t axis = 0; axis < spec.mesh().ndim(); ++axis) {
    if (owed_reduction(spec.placements()[axis]) == op) ranks *= spec.mesh().axes()[axis].size;
  }
  return ranks;
}

void expect_same(const DTensorSpec& spec, const DTensorSpec& other) {
  for (std::int64_t rank : spec.mesh().root().ranks()) {
    ASSERT_EQ(spec.mesh().fiber_of(rank), other.mesh().fiber_of(rank));
    ASSERT_EQ(slice_at(spec, *spec.mesh().coordinate_of(rank)),
              slice_at(other, *other.mesh().coordinate_of(rank)))
        << spec << " and " << other;
  }
  for (ReduceOp op : kReduceOps) ASSERT_EQ(ranks_that_owe(spec, op), ranks_that_owe(other, op));
  ASSERT_EQ(spec.meta(), other.meta());
}

TEST(CommonMeshLaw, EveryRankHoldsAndOwesWhatItDid) {
  Random random(11);
  int found = 0;
  for (std::int64_t ranks : {4, 6, 8, 12}) {
    for (const auto& sizes : factored(ranks)) {
      for (const auto& other_sizes : factored(ranks)) {
        std::vector<std::int64_t> listed(static_cast<std::size_t>(ranks));
        std::iota(listed.begin(), listed.end(), 0);
        if (random.one_in(3)) random.shuffle(listed);
        const DeviceMesh mesh = mesh_with(sizes, "a", listed);
        const DeviceMesh other = mesh_with(other_sizes, "b", listed);
        for (int round = 0; round < 4; ++round) {
          const TensorMeta meta({random.one_in(2) ? 2 * ranks : random.between(0, 15), ranks},
                                DType::F32);
          const DTensorSpec from = generated_spec(random, mesh, meta);
          const DTensorSpec to = generated_spec(random, other, meta);
          const std::optional<SpecPair> pair = on_common_mesh(from, to);
          if (!pair) continue;
          ++found;
          ASSERT_EQ(pair->from.mesh(), pair->to.mesh());
          expect_same(pair->from, from);
          expect_same(pair->to, to);
          if (HasFatalFailure()) return;
          EXPECT_NO_THROW(RedistributePlanner().plan(pair->from, pair->to));
        }
      }
    }
  }
  EXPECT_GT(found, 300);
}

TEST(CommonMesh, TheFinerOfTwoMeshesWillDo) {
  EXPECT_EQ(on_one_mesh("f32[8] on (x=4) as [S(0)]", "f32[8] on (a=2, b=2) as [R, P(sum)]"),
            "f32[8] on (a=2, b=2) as [S(0), S(0)] -> f32[8] on (a=2, b=2) as [R, P(sum)]");
  EXPECT_EQ(on_one_mesh("f32[8] on (a=2, b=2) as [S(0)[1], S(0)[0]]", "f32[8] on (x=4) as [S(0)]"),
            "f32[8] on (a=2, b=2) as [S(0)[1], S(0)[0]] -> f32[8] on (a=2, b=2) as [S(0), S(0)]");
  EXPECT_EQ(on_one_mesh("f32[8] on (x=4) as [S(0)]", "f32[8] on (y=4) as [R]"),
            "f32[8] on (x=4) as [S(0)] -> f32[8] on (x=4) as [R]");
}

TEST(CommonMesh, OneOfPartsIsMadeWhereNeitherWillDo) {
  EXPECT_EQ(on_one_mesh("f32[8] on (a=4, b=2) as [S(0), R]", "f32[8] on (c=2, d=4) as [R, S(0)]"),
            "f32[8] on (c=2, a_d=2, b=2) as [S(0), S(0), R] -> "
            "f32[8] on (c=2, a_d=2, b=2) as [R, S(0), S(0)]");
}

TEST(CommonMesh, FibersStayApart) {
  const DTensorSpec from = parse_spec("f32[8] on (b=4) of (a=2, b=4) as [S(0)]");
  const DTensorSpec to = parse_spec("f32[8] on (c=2, d=2) of (a=2, c=2, d=2) as [R, S(0)]");
  const std::optional<SpecPair> pair = on_common_mesh(from, to);
  ASSERT_TRUE(pair);
  expect_same(pair->from, from);
  expect_same(pair->to, to);
}

TEST(CommonMesh, ThereIsNoneForOtherRanksOrSizesThatDoNotMeet) {
  EXPECT_EQ(on_one_mesh("f32[8] on (x=2) as [R]", "f32[8] on (x=2) over [1, 0] as [R]"), "none");
  EXPECT_EQ(on_one_mesh("f32[8] on (x=2) as [R]", "f32[8] on (x=2) over [2, 3] as [R]"), "none");
  EXPECT_EQ(on_one_mesh("f32[8] on (a=2, b=3) as [R, R]", "f32[8] on (a=3, b=2) as [R, R]"),
            "none");
  EXPECT_EQ(on_one_mesh("f32[8] on (x=4@gloo) as [R]", "f32[8] on (x=4) as [R]"), "none");
}

TEST(CommonMesh, ThereIsNoneIfAnAxisCannotBeSplit) {
  const std::string whole = " on (a=2, b=2) as [R, R]";
  EXPECT_EQ(on_one_mesh("f32[9] on (x=4) as [S(0)]", "f32[9]" + whole), "none");
  EXPECT_EQ(on_one_mesh("f32[8] on (x=4) as [S(0, blocks=2)]", "f32[8]" + whole), "none");
  EXPECT_EQ(on_one_mesh("f32[8] on (x=4) as [M(8)]", "f32[8]" + whole), "none");
}

}  // namespace common_mesh_test
}  // namespace tegula::inner
