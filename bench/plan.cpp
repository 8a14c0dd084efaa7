// Redistributions that have to rearrange several axes, planned for 2 to 4 ranks along each and for
// 4,096 ranks in all, without a memory and with one; and what rules decide for a call.
#include "bench/google.h"
#include "bench/groups.h"
#include "tegula/ops/families.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/propagate/sharding_propagator.h"

namespace tegula::bench {
namespace {

using benchmark::DoNotOptimize;
using benchmark::State;

struct Case {
  std::string name;
  std::string tensor;
  std::string from;
  std::string to;
};

const std::vector<Case> kCases = {
    {"2 axes", "f32[1024, 1024, 64] on (a=2, b=4)", "[S(0), S(1)]", "[S(1), S(0)]"},
    {"2 axes 4096 ranks", "f32[1024, 1024, 64] on (a=64, b=64)", "[S(0), S(1)]", "[S(1), S(0)]"},
    {"3 axes", "f32[1024, 1024, 64] on (a=2, b=2, c=2)", "[S(0), S(0), S(1)]", "[S(1), R, S(0)]"},
    {"3 axes 4096 ranks", "f32[1024, 1024, 64] on (a=16, b=16, c=16)", "[S(0), S(0), S(1)]",
     "[S(1), R, S(0)]"},
    {"4 axes", "f32[1024, 1024, 64] on (a=2, b=2, c=2, d=2)", "[S(0), S(0), S(1), R]",
     "[S(1), R, S(0), S(2)]"},
    {"4 axes 4096 ranks", "f32[1024, 1024, 64] on (a=8, b=8, c=8, d=8)", "[S(0), S(0), S(1), R]",
     "[S(1), R, S(0), S(2)]"},
};

void register_case(const Case& one) {
  const DTensorSpec from = parse_spec(one.tensor + " as " + one.from);
  const DTensorSpec to = parse_spec(one.tensor + " as " + one.to);
  benchmark::RegisterBenchmark(one.name.c_str(), [from, to](State& state) {
    for (auto _ : state) {
      RedistributePlanner planner;
      DoNotOptimize(planner.plan(from, to));
    }
  })->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((one.name + " known").c_str(), [from, to](State& state) {
    RedistributePlanner planner;
    for (auto _ : state) DoNotOptimize(planner.plan(from, to));
  })->Unit(benchmark::kMicrosecond);
}

// Two matrices, the first cut by turns along rows and columns, the second whole.
OpSchema half_cut(const std::string& op, std::size_t axes) {
  std::vector<MeshAxis> grid;
  Placements cut;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    grid.push_back({"a" + std::to_string(axis), 2});
    cut.emplace_back(Shard(axis % 2 == 0 ? 0 : 1));
  }
  const TensorMeta meta({1024, 1024}, DType::F32);
  const DTensorSpec first(DeviceMesh(grid), cut, meta);
  return {op, {}, {first, first.with_placements(Placements(axes, Replicate()))}};
}

void register_decision(const std::string& op, std::size_t axes) {
  const std::string name =
      "decide " + op + " " + std::to_string(axes) + (axes == 1 ? " axis" : " axes");
  benchmark::RegisterBenchmark(name.c_str(), [schema = half_cut(op, axes)](State& state) {
    const ShardingPropagator propagator(rule_table());
    for (auto _ : state) DoNotOptimize(propagator.propagate(schema));
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace

std::vector<Measurement> run_plan() {
  for (const Case& one : kCases) register_case(one);
  for (std::size_t axes : {1, 2, 4}) {
    register_decision("add.Tensor", axes);
    register_decision("mm", axes);
  }
  return run_registered("plan");
}

}  // namespace tegula::bench
