#include "tegula/plan/axis_by_axis.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/plan/tile_step.h"
#include "tests/spec/generated.h"

namespace tegula {
namespace {

int axes_that_differ(const DTensorSpec& a, const DTensorSpec& b) {
  int count = 0;
  for (std::size_t axis = 0; axis < a.mesh().ndim(); ++axis) {
    count += a.placements()[axis] == b.placements()[axis] ? 0 : 1;
  }
  return count;
}

// "[R, S(0)] -> [R, R]", the placements passed through.
std::string way(const std::string& mesh, const std::string& from, const std::string& to) {
  const auto spec = [&](const std::string& as) {
    return parse_spec("f32[12, 12, 12] on " + mesh + " as " + as);
  };
  std::vector<std::string> texts;
  for (const DTensorSpec& point : waypoints(spec(from), spec(to))) {
    const std::string text = to_string(point);
    texts.push_back(text.substr(text.find(" as ") + 4));
  }
  return join(texts, " -> ");
}

TEST(WaypointsLaw, EveryStepChangesOneAxisAndCanBeTaken) {
  Random random(3);
  for (int round = 0; round < 4000; ++round) {
    const DeviceMesh mesh = generated_mesh(random, 3);
    const TensorMeta meta = generated_meta(random, 3, 9);
    const DTensorSpec from = generated_spec(random, mesh, meta);
    const DTensorSpec to = generated_spec(random, mesh, TensorMeta(meta.shape(), meta.dtype()));
    const std::vector<DTensorSpec> points = waypoints(from, to);
    const std::string text = to_string(from) + " -> " + to_string(to);
    ASSERT_LE(points.size(), 2 * mesh.ndim()) << text;
    EXPECT_EQ(points.empty() ? from.with_meta(to.meta()) : points.back(), to) << text;
    DTensorSpec at = from;
    for (const DTensorSpec& next : points) {
      EXPECT_EQ(axes_that_differ(at, next), 1) << text;
      for (const Coordinate& coordinate : all_coordinates(mesh.shape())) {
        EXPECT_NO_THROW(step_at(at, next, coordinate)) << text;
      }
      at = next;
    }
  }
}

TEST(Waypoints, AnAxisGoesStraightToItsGoalWhereItCan) {
  EXPECT_EQ(way("(a=2)", "[S(0)]", "[R]"), "[R]");
  EXPECT_EQ(way("(a=2)", "[S(0)]", "[S(1)]"), "[S(1)]");
  EXPECT_EQ(way("(a=2)", "[S(0)]", "[S(0, blocks=2)]"), "[S(0, blocks=2)]");
  EXPECT_EQ(way("(a=2)", "[P(sum)]", "[S(1)]"), "[S(1)]");
  EXPECT_EQ(way("(a=2)", "[S(1)]", "[P(sum)]"), "[P(sum)]");
  EXPECT_EQ(way("(a=2)", "[M(7)]", "[P(sum)]"), "[P(sum)]");
  EXPECT_EQ(way("(a=2, b=3)", "[S(0), S(0)]", "[S(0), S(1)]"), "[S(0), S(1)]");
  EXPECT_EQ(way("(a=2)", "[S(0)]", "[S(0)]"), "");
}

TEST(Waypoints, AReductionIsDoneBeforeAnotherKindIsOwed) {
  EXPECT_EQ(way("(a=2)", "[P(sum)]", "[P(max)]"), "[R] -> [P(max)]");
  EXPECT_EQ(way("(a=2)", "[S(0)]", "[P(max)]"), "[R] -> [P(max)]");
  EXPECT_EQ(way("(a=2, b=2)", "[P(sum), R]", "[R, P(max)]"), "[R, R] -> [R, P(max)]");
}

TEST(Waypoints, TilesShrinkBeforeTheyAreSent) {
  EXPECT_EQ(way("(a=2, b=2)", "[P(sum), R]", "[R, S(0)]"), "[P(sum), S(0)] -> [R, S(0)]");
  EXPECT_EQ(way("(a=2, b=2)", "[S(1), P(sum)]", "[R, R]"), "[S(1), R] -> [R, R]");
}

TEST(Waypoints, AnAxisThatIsInTheWayIsGathered) {
  EXPECT_EQ(way("(a=2, b=3)", "[S(0), S(1)]", "[S(1), S(0)]"),
            "[R, S(1)] -> [R, S(0)] -> [S(1), S(0)]");
  EXPECT_EQ(way("(a=2, b=2)", "[S(0), S(0)]", "[R, S(0)]"), "[S(0), R] -> [R, R] -> [R, S(0)]");
  EXPECT_EQ(way("(a=2, b=2)", "[S(0), S(0)]", "[S(0)[1], S(0)[0]]"),
            "[S(0), R] -> [R, R] -> [R, S(0)] -> [S(0)[1], S(0)[0]]");
}

TEST(Waypoints, StridesAreThoseOfTheEnd) {
  const DTensorSpec from = parse_spec("f32[4, 6] on (a=2, b=2) as [S(0), S(1)]");
  const DTensorSpec to = parse_spec("f32[4, 6] strides [1, 4] on (a=2, b=2) as [R, R]");
  for (const DTensorSpec& point : waypoints(from, to)) EXPECT_EQ(point.meta(), to.meta());
  EXPECT_TRUE(waypoints(from, from.with_meta(to.meta())).empty());
}

TEST(Waypoints, SpecsOfOtherTensorsAreRefused) {
  const DTensorSpec spec = parse_spec("f32[4] on (a=2) as [R]");
  EXPECT_THROW(waypoints(spec, parse_spec("f32[5] on (a=2) as [R]")), UsageError);
  EXPECT_THROW(waypoints(spec, parse_spec("f64[4] on (a=2) as [R]")), UsageError);
  try {
    waypoints(spec, parse_spec("f32[4] on (b=2) as [R]"));
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: a tensor is redistributed over its own mesh, as what it is\n"
                 "  from    f32[4] on (a=2) as [R]\n"
                 "  to      f32[4] on (b=2) as [R]\n"
                 "  hint    give two specs with one mesh, shape and element type");
  }
}

}  // namespace
}  // namespace tegula
