#include <numeric>

#include "bench/google.h"
#include "bench/groups.h"
#include "tegula/spec/slices.h"

namespace tegula::bench {
namespace {

using benchmark::DoNotOptimize;
using benchmark::State;

constexpr std::int64_t kRankCounts[] = {8, 64, 512, 4096, 65536};

DeviceMesh square_mesh(std::int64_t ranks) { return DeviceMesh({{"dp", ranks / 8}, {"tp", 8}}); }

void register_case(const std::string& name, const std::function<void(State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMicrosecond);
}

void register_specs() {
  register_case("intern a known spec", [](State& state) {
    const DeviceMesh mesh = square_mesh(64);
    const Placements placements{Replicate(), Shard(0)};
    const TensorMeta meta({1024, 4096}, DType::F32);
    const DTensorSpec kept(mesh, placements, meta);
    for (auto _ : state) DoNotOptimize(DTensorSpec(mesh, placements, meta));
  });
  register_case("intern a new spec", [](State& state) {
    const DeviceMesh mesh = square_mesh(64);
    const Placements placements{Replicate(), Shard(0)};
    std::int64_t size = 1;
    for (auto _ : state)
      DoNotOptimize(DTensorSpec(mesh, placements, TensorMeta({size++, 4096}, DType::F32)));
  });
  register_case("copy and compare a spec", [](State& state) {
    const DTensorSpec spec(square_mesh(64), {Replicate(), Shard(0)},
                           TensorMeta({1024, 4096}, DType::F32));
    for (auto _ : state) {
      const DTensorSpec copy = spec;
      DoNotOptimize(copy == spec);
    }
  });
  register_case("local shape", [](State& state) {
    const DTensorSpec spec(square_mesh(64), {Shard(0), Shard(1)},
                           TensorMeta({1000, 4097}, DType::F32));
    const Coordinate at{3, 5};
    for (auto _ : state) DoNotOptimize(local_shape(spec, at));
  });
  register_case("local slice", [](State& state) {
    const DTensorSpec spec(square_mesh(64), {Shard(0), Shard(1)},
                           TensorMeta({1000, 4097}, DType::F32));
    const Coordinate at{3, 5};
    for (auto _ : state) DoNotOptimize(slice_at(spec, at));
  });
  register_case("parse a spec", [](State& state) {
    for (auto _ : state) DoNotOptimize(parse_spec("f32[1024, 4096] on (dp=8, tp=8) as [R, S(0)]"));
  });
}

void register_meshes(std::int64_t ranks) {
  const std::string suffix = " " + std::to_string(ranks) + " ranks";
  register_case("mesh create" + suffix, [ranks](State& state) {
    for (auto _ : state) DoNotOptimize(square_mesh(ranks));
  });
  register_case("mesh create from a list" + suffix, [ranks](State& state) {
    std::vector<std::int64_t> list(static_cast<std::size_t>(ranks));
    std::iota(list.rbegin(), list.rend(), 0);
    for (auto _ : state) DoNotOptimize(DeviceMesh({{"dp", ranks / 8}, {"tp", 8}}, list));
  });
  register_case("mesh slice" + suffix, [ranks](State& state) {
    const DeviceMesh mesh = square_mesh(ranks);
    for (auto _ : state) DoNotOptimize(mesh["tp"]);
  });
  register_case("mesh coordinate" + suffix, [ranks](State& state) {
    const DeviceMesh mesh = square_mesh(ranks);
    for (auto _ : state) DoNotOptimize(mesh.coordinate_of(ranks - 3));
  });
  register_case("mesh group of a rank" + suffix, [ranks](State& state) {
    const DeviceMesh mesh = square_mesh(ranks);
    for (auto _ : state) DoNotOptimize(mesh.group_of(ranks - 3, 1));
  });
}

}  // namespace

std::vector<Measurement> run_core() {
  register_specs();
  for (std::int64_t ranks : kRankCounts) register_meshes(ranks);
  return run_registered("core");
}

}  // namespace tegula::bench
