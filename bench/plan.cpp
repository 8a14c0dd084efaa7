// Redistributions that have to rearrange several axes, planned for 2 to 4 ranks along each and for
// 4,096 ranks in all, without a memory and with one; the pairs by chance that take longest; and
// what rules decide for a call.
#include <algorithm>
#include <ctime>
#include <random>

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

enum class Cuts { Even, InBlocks, Ragged };

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

// Pairs over four axes by chance, the same in every run.
class RandomPairs {
 public:
  explicit RandomPairs(Cuts cuts) : cuts_(cuts) {}

  std::pair<DTensorSpec, DTensorSpec> next() {
    std::vector<MeshAxis> axes;
    for (const char* name : {"a", "b", "c", "d"}) axes.push_back({name, between(2, 4)});
    Shape shape(static_cast<std::size_t>(between(2, 4)));
    const bool is_large = between(0, 1) == 1;
    for (std::int64_t& size : shape) size = is_large ? between(64, 1024) : between(4, 64);
    const DeviceMesh mesh(axes);
    const TensorMeta meta(shape, DType::F32);
    return {spec(mesh, meta), spec(mesh, meta)};
  }

 private:
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first +
           static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(last - first + 1));
  }

  // R, sums that are owed and shards, in any order.
  DTensorSpec spec(const DeviceMesh& mesh, const TensorMeta& meta) {
    Placements placements;
    for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
      const std::int64_t dim = between(-2, meta.ndim() - 1);
      placements.push_back(dim == -2   ? Placement(Replicate())
                           : dim == -1 ? Placement(Partial())
                                       : Placement(Shard(dim, cut_in_blocks())));
    }
    ShardOrder order = default_shard_order(placements);
    for (ShardOrderEntry& entry : order) {
      std::shuffle(entry.axes.begin(), entry.axes.end(), engine_);
      if (cuts_ != Cuts::Ragged) continue;
      const std::size_t first = entry.axes.front();
      const std::int64_t size = meta.shape()[static_cast<std::size_t>(entry.dim)];
      placements[first] = Shard(entry.dim, ragged_cut(size, mesh.axes()[first].size));
    }
    return {mesh, placements, order, meta};
  }

  // Half of them, if the pairs are to be in blocks.
  Cut cut_in_blocks() {
    const bool is_even = cuts_ != Cuts::InBlocks || between(0, 1) == 0;
    return is_even ? Cut() : Cut::in_blocks(between(2, 20));
  }

  Cut ragged_cut(std::int64_t size, std::int64_t ranks) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t rank = 0; rank + 1 < ranks; ++rank) {
      sizes.push_back(between(0, size));
      size -= sizes.back();
    }
    sizes.push_back(size);
    return Cut::ragged(sizes);
  }

  Cuts cuts_;
  std::mt19937_64 engine_{1};
};

// Of this process, so that what else runs on the machine counts as little as it can.
double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// The median of some rounds.
double planning_us(const DTensorSpec& from, const DTensorSpec& to, std::size_t rounds) {
  std::vector<double> times;
  for (std::size_t round = 0; round < rounds; ++round) {
    RedistributePlanner planner;
    const double start = cpu_us();
    DoNotOptimize(planner.plan(from, to));
    times.push_back(cpu_us() - start);
  }
  std::sort(times.begin(), times.end());
  return times[rounds / 2];
}

// The slowest are measured again, with more rounds: one that was only disturbed drops out.
Measurement worst(const std::string& name, Cuts cuts, std::size_t count) {
  struct Timed {
    double us;
    DTensorSpec from, to;
  };
  RandomPairs pairs(cuts);
  std::vector<Timed> all;
  for (std::size_t round = 0; round < count; ++round) {
    const auto [from, to] = pairs.next();
    all.push_back({planning_us(from, to, 3), from, to});
  }
  std::sort(all.begin(), all.end(), [](const Timed& a, const Timed& b) { return a.us > b.us; });
  double longest = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    longest = std::max(longest, planning_us(all[i].from, all[i].to, 31));
  }
  return {"plan", name + " worst of " + std::to_string(count), "tegula", longest, "us"};
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
  std::vector<Measurement> measured = run_registered("plan");
  measured.push_back(worst("4 axes", Cuts::Even, 300));
  measured.push_back(worst("4 axes in blocks", Cuts::InBlocks, 300));
  measured.push_back(worst("4 axes ragged", Cuts::Ragged, 300));
  return measured;
}

}  // namespace tegula::bench
