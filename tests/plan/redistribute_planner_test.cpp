#include "tegula/plan/redistribute_planner.h"

#include <gtest/gtest.h>

#include <thread>

#include "tegula/base/error.h"
#include "tegula/plan/search.h"
#include "tegula/plan/through_replicas.h"
#include "tegula/plan/tile_step.h"
#include "tests/plan/exhaustive.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace redistribute_planner_test {

constexpr std::int64_t kMega = std::int64_t{1} << 20;

Plan planned(const DTensorSpec& from, const DTensorSpec& to, const PlanOptions& options = {}) {
  return *RedistributePlanner().plan(from, to, options);
}

// The plan's steps, one per line.
std::string way(const std::string& tensor, const std::string& from, const std::string& to,
                const PlanOptions& options = {}) {
  return to_string(
      planned(parse_spec(tensor + " as " + from), parse_spec(tensor + " as " + to), options));
}

std::string ends_of(const DTensorSpec& from, const DTensorSpec& to) {
  return to_string(from) + " -> " + to_string(to);
}

// Every step can be taken by every rank, and they lead from one end to the other.
void expect_valid(const Plan& plan, const DTensorSpec& from, const DTensorSpec& to) {
  const std::string text = ends_of(from, to);
  EXPECT_EQ(plan.from, from) << text;
  EXPECT_EQ(plan.to, to) << text;
  DTensorSpec at = from;
  for (const Step& step : plan.steps) {
    ASSERT_EQ(step.before, at) << text;
    EXPECT_EQ(step.after.meta(), to.meta()) << text;
    EXPECT_EQ(step.axes, changed_axes(step.before, step.after)) << text;
    for (const Coordinate& coordinate : all_coordinates(from.mesh().shape())) {
      TileStep of_rank;
      ASSERT_NO_THROW(of_rank = step_at(step.before, step.after, coordinate)) << text;
      EXPECT_EQ(communicates(of_rank), communicates(step.kind)) << text << '\n' << plan;
    }
    at = step.after;
  }
  EXPECT_EQ(at.with_meta(to.meta()), to) << text;
}

TEST(PlannerLaw, EveryStepCanBeTakenAndTheyLeadToTheEnd) {
  Random random(3);
  for (int round = 0; round < 1500; ++round) {
    const DeviceMesh mesh = generated_mesh(random, 3);
    const TensorMeta meta = generated_meta(random, 3, 9);
    const DTensorSpec from = generated_spec(random, mesh, meta);
    const DTensorSpec to = generated_spec(random, mesh, TensorMeta(meta.shape(), meta.dtype()));
    expect_valid(planned(from, to), from, to);
    if (HasFailure()) return;
  }
}

void expect_optimal(const DTensorSpec& from, const DTensorSpec& to, const CostModel& model) {
  const Plan plan = *RedistributePlanner(model).plan(from, to);
  ASSERT_EQ(plan.picoseconds(), least_time(from, to, model)) << ends_of(from, to) << '\n' << plan;
}

// Tensors whose time is all latency, all bytes, and both; uneven ones too.
const std::vector<Shape> kShapes = {{4, 8, 2}, {4096, 512, 64}, {600, 30, 7}};

TEST(PlannerLaw, NoWayIsFasterOnOneAndTwoAxes) {
  for (const DeviceMesh& mesh : {DeviceMesh({{"a", 4}}), DeviceMesh({{"a", 2}, {"b", 2}}),
                                 DeviceMesh({{"a", 2}, {"b", 3}})}) {
    for (const Shape& shape : kShapes) {
      const std::vector<DTensorSpec> specs = plain_specs(mesh, TensorMeta(shape, DType::F32));
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const std::map<std::uint64_t, std::int64_t> times = least_times(specs, specs[i], {});
        for (const DTensorSpec& to : specs) {
          ASSERT_EQ(planned(specs[i], to).picoseconds(), times.at(to.id()))
              << ends_of(specs[i], to) << '\n'
              << planned(specs[i], to);
        }
      }
    }
  }
}

TEST(PlannerLaw, NoWayIsFasterOnThreeAxes) {
  Random random(4);
  const DeviceMesh mesh({{"a", 2}, {"b", 3}, {"c", 2}});
  const CostModel slow_c = CostModel::calibrated({5, 5}, 8, {{"c", {40, 0.5}}});
  for (int round = 0; round < 6; ++round) {
    const TensorMeta meta(kShapes[static_cast<std::size_t>(round) % kShapes.size()], DType::F32);
    const CostModel model = round % 2 == 0 ? CostModel() : slow_c;
    const std::vector<DTensorSpec> specs = plain_specs(mesh, meta);
    const DTensorSpec from = random.pick(specs);
    const std::map<std::uint64_t, std::int64_t> times = least_times(specs, from, model);
    RedistributePlanner planner(model);
    for (const DTensorSpec& to : specs) {
      ASSERT_EQ(planner.plan(from, to)->picoseconds(), times.at(to.id()))
          << ends_of(from, to) << '\n'
          << *planner.plan(from, to);
    }
  }
}

TEST(PlannerLaw, NoWayIsFasterWhereReductionsAreOwed) {
  Random random(10);
  const DeviceMesh three({{"a", 2}, {"b", 2}, {"c", 3}});
  const DeviceMesh two({{"a", 2}, {"b", 4}});
  for (int round = 0; round < 48; ++round) {
    const DeviceMesh& mesh = round % 8 == 0 ? three : two;
    const std::int64_t dims = round % 8 == 0 ? 2 : 3;
    Shape shape = kShapes[static_cast<std::size_t>(round) % kShapes.size()];
    shape.resize(static_cast<std::size_t>(dims));
    const auto spec = [&] {
      Placements placements = generated_placements(random, mesh.ndim(), dims);
      placements[0] = random.one_in(2) ? Placement(Partial()) : Placement(Replicate());
      for (Placement& placement : placements) {
        const bool is_owed = owed_reduction(placement).has_value();
        if (is_owed && !commute(*owed_reduction(placement), ReduceOp::Sum)) placement = Partial();
      }
      return DTensorSpec(mesh, placements, TensorMeta(shape, DType::F32));
    };
    expect_optimal(spec(), spec(), {});
    if (HasFatalFailure()) return;
  }
}

TEST(PlannerLaw, NoWayIsFasterForCutsThatAreNotEven) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    const DeviceMesh mesh({{"a", random.between(1, 3)}, {"b", random.between(2, 3)}});
    const std::int64_t longest = round % 2 == 0 ? 40 : 40'000;  // all latency, all bytes
    const TensorMeta meta({random.between(0, longest), random.between(1, 9)}, DType::F64);
    expect_optimal(generated_spec(random, mesh, meta), generated_spec(random, mesh, meta), {});
    if (HasFatalFailure()) return;
  }
}

TEST(PlannerLaw, ACapIsKeptAndTheLeastPeakCanBeReached) {
  Random random(6);
  const DeviceMesh mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  int tightened = 0;
  for (int round = 0; round < 200; ++round) {
    const TensorMeta meta({16, 8, 4}, DType::F32);
    const DTensorSpec from = generated_spec(random, mesh, meta);
    const DTensorSpec to = generated_spec(random, mesh, meta);
    const Plan free = planned(from, to);
    if (free.steps.empty()) continue;
    const std::int64_t least = least_peak(StateSpace(from, to), {});
    const Plan capped = planned(from, to, {least});
    ASSERT_EQ(capped.peak_bytes(), least) << ends_of(from, to);
    EXPECT_GE(capped.picoseconds(), free.picoseconds());
    expect_valid(capped, from, to);
    EXPECT_THROW(planned(from, to, {least - 1}), UsageError);
    tightened += least < free.peak_bytes() ? 1 : 0;
  }
  EXPECT_GT(tightened, 5);
}

TEST(PlannerLaw, APlanThatIsRememberedIsTheOneThatWasMade) {
  Random random(7);
  RedistributePlanner planner;
  const DeviceMesh mesh({{"a", 2}, {"b", 2}});
  for (int round = 0; round < 100; ++round) {
    const TensorMeta meta({12, 12}, DType::F32);
    const DTensorSpec from = generated_spec(random, mesh, meta);
    const DTensorSpec to = generated_spec(random, mesh, meta);
    const auto first = planner.plan(from, to);
    EXPECT_EQ(planner.plan(from, to), first);
    EXPECT_EQ(*first, planned(from, to));
  }
}

TEST(Planner, OnlyTheLatestPlansAreRemembered) {
  RedistributePlanner planner;
  std::vector<DTensorSpec> specs;
  const DeviceMesh mesh({{"a", 2}});
  for (std::size_t size = 0; size <= RedistributePlanner::kMostPlans; ++size) {
    const TensorMeta meta({static_cast<std::int64_t>(size)}, DType::F32);
    specs.emplace_back(mesh, Placements{Replicate()}, meta);
  }
  const auto to = [](const DTensorSpec& spec) { return spec.with_placements({Shard(0)}); };
  const auto first = planner.plan(specs.front(), to(specs.front()));
  EXPECT_EQ(planner.plan(specs.front(), to(specs.front())), first);
  for (const DTensorSpec& spec : specs) planner.plan(spec, to(spec));
  EXPECT_NE(planner.plan(specs.front(), to(specs.front())), first);
  EXPECT_EQ(*planner.plan(specs.front(), to(specs.front())), *first);
}

TEST(Planner, ThreadsMayShareOne) {
  RedistributePlanner planner;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Random random(8);
      const DeviceMesh mesh({{"a", 2}, {"b", 2}});
      for (int round = 0; round < 50; ++round) {
        const TensorMeta meta({12, 12}, DType::F32);
        const DTensorSpec from = generated_spec(random, mesh, meta);
        const DTensorSpec to = generated_spec(random, mesh, meta);
        EXPECT_EQ(*planner.plan(from, to), planned(from, to));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Planner, AnotherCostModelMakesOtherPlans) {
  const DTensorSpec from = parse_spec("f32[64, 64] on (a=2, b=2) as [S(0), R]");
  const DTensorSpec to = parse_spec("f32[64, 64] on (a=2, b=2) as [R, R]");
  RedistributePlanner planner;
  const auto before = planner.plan(from, to);
  planner.set_cost_model(CostModel::calibrated({50, 1}, 8));
  EXPECT_EQ(planner.cost_model(), CostModel::calibrated({50, 1}, 8));
  EXPECT_GT(planner.plan(from, to)->picoseconds(), before->picoseconds());
}

TEST(Planner, AnAxisGoesStraightToItsGoalWhereItCan) {
  const std::string tensor = "f32[12, 12] on (a=2)";
  EXPECT_EQ(way(tensor, "[S(0)]", "[R]"), "all-gather over a: [S(0)] -> [R]");
  EXPECT_EQ(way(tensor, "[S(0)]", "[S(1)]"), "all-to-all over a: [S(0)] -> [S(1)]");
  EXPECT_EQ(way(tensor, "[S(0)]", "[S(0, blocks=2)]"),
            "all-to-all over a: [S(0)] -> [S(0, blocks=2)]");
  EXPECT_EQ(way(tensor, "[P(sum)]", "[S(1)]"), "reduce-scatter over a: [P(sum)] -> [S(1)]");
  EXPECT_EQ(way(tensor, "[P(sum)]", "[R]"), "all-reduce over a: [P(sum)] -> [R]");
  EXPECT_EQ(way(tensor, "[R]", "[S(1)]"), "slice over a: [R] -> [S(1)]");
  EXPECT_EQ(way(tensor, "[R]", "[P(max)]"), "owe over a: [R] -> [P(max)]");
  EXPECT_EQ(way(tensor, "[S(1)]", "[P(sum)]"), "pad over a: [S(1)] -> [P(sum)]");
  EXPECT_EQ(way(tensor, "[M(7)]", "[P(sum)]"), "rename over a: [M(7)] -> [P(sum)]");
  EXPECT_EQ(way(tensor, "[S(0)]", "[S(0)]"), "");
}

TEST(Planner, AReductionIsDoneBeforeAnotherKindIsOwed) {
  EXPECT_EQ(way("f32[12] on (a=2)", "[P(sum)]", "[P(max)]"),
            "all-reduce over a: [P(sum)] -> [R]\n"
            "owe over a: [R] -> [P(max)]");
}

TEST(Planner, AxesThatChangeAlikeShareOneCollective) {
  const std::string tensor = "f32[1024, 1024] on (dp=4, tp=2)";
  EXPECT_EQ(way(tensor, "[P(sum), P(sum)]", "[R, R]"),
            "all-reduce over dp, tp: [P(sum), P(sum)] -> [R, R]");
  EXPECT_EQ(way(tensor, "[S(0), S(0)]", "[R, R]"),
            "all-gather over dp, tp: [S(0), S(0)] -> [R, R]");
  EXPECT_EQ(way(tensor, "[P(sum), P(sum)]", "[S(0), S(0)]"),
            "reduce-scatter over dp, tp: [P(sum), P(sum)] -> [S(0), S(0)]");
  EXPECT_EQ(way(tensor, "[S(0), S(0)]", "[S(1), S(1)]"),
            "all-to-all over dp, tp: [S(0), S(0)] -> [S(1), S(1)]");
}

TEST(Planner, AxesWithABackendOfTheirOwnMoveAlone) {
  EXPECT_EQ(way("f32[64] on (dp=4@gloo, tp=2)", "[P(sum), P(sum)]", "[R, R]"),
            "all-reduce over dp: [P(sum), P(sum)] -> [R, P(sum)]\n"
            "all-reduce over tp: [R, P(sum)] -> [R, R]");
}

TEST(Planner, TheFirstAxisToCutLeavesWithoutAFullGather) {
  EXPECT_EQ(way("f32[4096, 1024] on (a=4, b=4)", "[S(0), S(0)]", "[R, S(0)]"),
            "permute over a, b: [S(0), S(0)] -> [S(0)[1], S(0)[0]]\n"
            "all-gather over a: [S(0)[1], S(0)[0]] -> [R, S(0)]");
  EXPECT_EQ(way("f32[4096, 1024] on (a=4, b=4)", "[S(0), S(0)]", "[S(0)[1], S(0)[0]]"),
            "permute over a, b: [S(0), S(0)] -> [S(0)[1], S(0)[0]]");
}

TEST(Planner, ShardsChangeDimsWithoutAFullGather) {
  EXPECT_EQ(way("f32[1024, 1024, 64] on (a=4, b=4)", "[S(0), S(1)]", "[S(1), S(0)]"),
            "all-to-all over a: [S(0), S(1)] -> [S(2), S(1)]\n"
            "all-to-all over b: [S(2), S(1)] -> [S(2), S(0)]\n"
            "all-to-all over a: [S(2), S(0)] -> [S(1), S(0)]");
}

TEST(Planner, AnOwedSumGoesIntoShardsAtOnce) {
  EXPECT_EQ(way("f32[1024, 1024] on (dp=2, tp=4)", "[P(sum), S(1)]", "[S(0), S(1)]"),
            "reduce-scatter over dp: [P(sum), S(1)] -> [S(0), S(1)]");
  EXPECT_EQ(way("f32[1024, 1024] on (dp=2, tp=4)", "[P(sum), R]", "[R, S(0)]"),
            "slice over tp: [P(sum), R] -> [P(sum), S(0)]\n"
            "all-reduce over dp: [P(sum), S(0)] -> [R, S(0)]");
}

TEST(Planner, ASmallTensorTakesFewerCallsThanALargeOne) {
  EXPECT_EQ(way("f32[8, 8] on (a=2, b=2)", "[S(0), S(0)]", "[R, S(0)]"),
            "all-gather over a, b: [S(0), S(0)] -> [R, R]\n"
            "slice over b: [R, R] -> [R, S(0)]");
}

TEST(Planner, ASlowAxisGetsLessToSend) {
  const DTensorSpec from = parse_spec("f32[4096, 4096] on (node=2, gpu=8) as [P(sum), P(sum)]");
  const DTensorSpec to = parse_spec("f32[4096, 4096] on (node=2, gpu=8) as [R, R]");
  RedistributePlanner planner(CostModel::calibrated({5, 100}, 1000, {{"node", {20, 1}}}));
  EXPECT_EQ(to_string(*planner.plan(from, to)),
            "reduce-scatter over gpu: [P(sum), P(sum)] -> [P(sum), S(0)]\n"
            "all-reduce over node: [P(sum), S(0)] -> [R, S(0)]\n"
            "all-gather over gpu: [R, S(0)] -> [R, R]");
}

TEST(Planner, AxesOfOneRankChangeOnTheWay) {
  EXPECT_EQ(way("f32[8] on (a=2, one=1)", "[S(0), S(0)]", "[R, P(max)]"),
            "all-gather over a: [S(0), S(0)] -> [R, P(max)]");
  EXPECT_EQ(way("f32[8] on (a=2, one=1)", "[S(0), R]", "[S(0), S(0)]"),
            "rename: [S(0), R] -> [S(0), S(0)]");
}

TEST(Planner, OnManyAxesThoseThatStayAreLeftAlone) {
  const std::string tensor = "f32[64, 64] on (a=2, b=2, c=2, d=2, e=2, f=2, g=2, h=2)";
  EXPECT_EQ(way(tensor, "[S(0), R, R, R, R, R, R, S(1)]", "[S(0), R, R, R, R, R, R, R]"),
            "all-gather over h: [S(0), R, R, R, R, R, R, S(1)] -> [S(0), R, R, R, R, R, R, R]");
  EXPECT_EQ(
      way(tensor, "[S(0), P(sum), R, R, R, R, R, S(0)]", "[S(0), P(sum), R, R, R, R, R, S(1)]"),
      "all-to-all over h: [S(0), P(sum), R, R, R, R, R, S(0)] -> "
      "[S(0), P(sum), R, R, R, R, R, S(1)]");
}

TEST(Planner, WhereVeryManyAxesMoveTheyAreReplicated) {
  const std::string tensor = "f32[16, 16] on (a=2, b=2, c=2, d=2, e=2, f=2, g=2)";
  EXPECT_EQ(way(tensor, "[S(0), S(0), S(0), S(1), S(1), P(sum), P(sum)]",
                "[S(1), R, P(max), S(0), S(0), S(0), S(0)]"),
            "all-reduce over f, g: [S(0), S(0), S(0), S(1), S(1), P(sum), P(sum)] -> "
            "[S(0), S(0), S(0), S(1), S(1), R, R]\n"
            "all-gather over a, b, c: [S(0), S(0), S(0), S(1), S(1), R, R] -> "
            "[R, R, R, S(1), S(1), R, R]\n"
            "all-gather over d, e: [R, R, R, S(1), S(1), R, R] -> [R, R, R, R, R, R, R]\n"
            "slice over d, e, f, g: [R, R, R, R, R, R, R] -> [R, R, R, S(0), S(0), S(0), S(0)]\n"
            "slice over a: [R, R, R, S(0), S(0), S(0), S(0)] -> "
            "[S(1), R, R, S(0), S(0), S(0), S(0)]\n"
            "owe over c: [S(1), R, R, S(0), S(0), S(0), S(0)] -> "
            "[S(1), R, P(max), S(0), S(0), S(0), S(0)]");
}

TEST(PlannerLaw, TheWayThroughReplicasIsOneToo) {
  Random random(9);
  for (int round = 0; round < 500; ++round) {
    const DeviceMesh mesh = generated_mesh(random, 3);
    const TensorMeta meta = generated_meta(random, 3, 9);
    const DTensorSpec from = generated_spec(random, mesh, meta);
    const DTensorSpec to = generated_spec(random, mesh, meta);
    if (from == to) continue;
    Plan plan{from, to, {}};
    DTensorSpec at = from;
    for (const DTensorSpec& next : through_replicas(from, to)) {
      plan.steps.push_back(step_between(at, next, {}));
      at = next;
    }
    expect_valid(plan, from, to);
    if (HasFailure()) return;
  }
}

TEST(Planner, StridesAreThoseOfTheEnd) {
  const DTensorSpec from = parse_spec("f32[4, 6] on (a=2, b=2) as [S(0), S(1)]");
  const DTensorSpec to = parse_spec("f32[4, 6] strides [1, 4] on (a=2, b=2) as [R, R]");
  for (const Step& step : planned(from, to).steps) EXPECT_EQ(step.after.meta(), to.meta());
  EXPECT_TRUE(planned(from, from.with_meta(to.meta())).steps.empty());
}

TEST(Planner, APeakThatCannotBeKeptToNamesTheLeast) {
  const DTensorSpec from = parse_spec("f32[8, 8] on (a=2) as [S(0)]");
  const DTensorSpec to = parse_spec("f32[8, 8] on (a=2) as [R]");
  EXPECT_EQ(planned(from, to, {384}).steps.size(), 1U);
  try {
    planned(from, to, {383});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: no way keeps to this peak memory\n"
                 "  from    f32[8, 8] on (a=2) as [S(0)]\n"
                 "  to      f32[8, 8] on (a=2) as [R]\n"
                 "  allowed 383 bytes\n"
                 "  needed  384 bytes\n"
                 "  hint    allow what is needed, or redistribute the tensor in parts");
  }
}

TEST(Planner, ACapCanForceASlowerWay) {
  EXPECT_EQ(way("f32[8, 8] on (a=2, b=2)", "[S(0), S(0)]", "[R, S(0)]", {319}),
            "permute over a, b: [S(0), S(0)] -> [S(0)[1], S(0)[0]]\n"
            "all-gather over a: [S(0)[1], S(0)[0]] -> [R, S(0)]");
}

TEST(Planner, SpecsOfOtherTensorsAreRefused) {
  const DTensorSpec spec = parse_spec("f32[4] on (a=2) as [R]");
  EXPECT_THROW(planned(spec, parse_spec("f32[5] on (a=2) as [R]")), UsageError);
  EXPECT_THROW(planned(spec, parse_spec("f64[4] on (a=2) as [R]")), UsageError);
  try {
    planned(spec, parse_spec("f32[4] on (b=2) as [R]"));
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "tegula: a plan cannot change the mesh, the shape or the element type of a tensor\n"
        "  from    f32[4] on (a=2) as [R]\n"
        "  to      f32[4] on (b=2) as [R]\n"
        "  hint    give two specs with one mesh, shape and element type");
  }
}

TEST(Planner, TensorsBeyondAllNumbersArePlannedToo) {
  const std::int64_t huge = std::int64_t{1} << 59;
  const DeviceMesh mesh({{"a", 4096}, {"b", 4096}});
  const TensorMeta meta({huge / kMega, kMega}, DType::F64);
  const DTensorSpec from(mesh, {Shard(0), Shard(1)}, meta);
  const DTensorSpec to(mesh, {Replicate(), Replicate()}, meta);
  EXPECT_EQ(planned(from, to).steps.size(), 2U);
}

}  // namespace redistribute_planner_test
}  // namespace tegula::inner
