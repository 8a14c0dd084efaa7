// Redistributions that have to rearrange several axes, planned for 2 to 4 ranks along each and for
// 4,096 ranks in all, without a memory and with one.
#include "bench/google.h"
#include "bench/groups.h"
#include "tegula/plan/redistribute_planner.h"

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

}  // namespace

std::vector<Measurement> run_plan() {
  for (const Case& one : kCases) register_case(one);
  return run_registered("plan");
}

}  // namespace tegula::bench
