// What one op costs on small tensors, where nothing but the way to the kernel counts. Operands are
// placed so that no op needs another rank. `plain` is the same op on a plain tensor of the tile's
// shape, in turns with ours. Each part runs in processes of its own.
#include <ATen/ATen.h>

#include <chrono>
#include <functional>

#include "bench/allocations.h"
#include "bench/google.h"
#include "bench/groups.h"
#include "bench/optimizers.h"
#include "bench/processes.h"
#include "bench/small_ops.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::bench {
namespace {

using benchmark::State;
using Clock = std::chrono::steady_clock;

constexpr Repeats kTogether{500, 7};  // of ops on several ranks
constexpr int kParameters = 50;
constexpr int kColdCalls = 100;
constexpr int kCountedCalls = 1000;
constexpr int kBatch = 100;
constexpr int kTurns = 301;

at::Tensor placed(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  DistributeOptions everyone_has_it;
  everyone_has_it.source = std::nullopt;
  return distribute_tensor(tensor, mesh, placements, everyone_has_it);
}

void register_case(const std::string& name, const std::string& who,
                   const std::function<void()>& body) {
  const std::function<void(State&)> loop = [body](State& state) {
    for (auto _ : state) body();
  };
  benchmark::RegisterBenchmark((name + " by " + who).c_str(), loop)->Unit(benchmark::kMicrosecond);
}

double time_of_batch(Op op, const Operands& operands) {
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kBatch; ++i) op(operands);
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kBatch;
}

// In turns, in short batches, so that a slow moment of the machine hits both alike; medians.
std::vector<Measurement> measure_in_turns(std::span<const OpCase> ops, const Operands& ours,
                                          const Operands& plain) {
  std::vector<Measurement> found;
  for (const OpCase& one : ops) {
    std::vector<double> of_ours;
    std::vector<double> of_plain;
    for (int turn = 0; turn < kTurns; ++turn) {
      of_ours.push_back(time_of_batch(one.op, ours));
      of_plain.push_back(time_of_batch(one.op, plain));
    }
    const std::string name = std::string(one.name) + " cached";
    found.push_back({"dispatch", name, "tegula", median(of_ours), "us"});
    found.push_back({"dispatch", name, "plain", median(of_plain), "us"});
  }
  return found;
}

// Forward and backward through y = relu(x w' + b), the weight cut by columns of y.
struct Layer {
  at::Tensor x, weight, bias;

  void pass() {
    at::linear(x, weight, bias).relu().sum().backward();
    weight.mutable_grad().reset();
    bias.mutable_grad().reset();
  }
};

Layer plain_layer(std::int64_t size) {
  return {at::rand({size, size}), at::rand({size, size}).requires_grad_(true),
          at::rand({size}).requires_grad_(true)};
}

Layer distributed_layer(std::int64_t size, const DeviceMesh& mesh) {
  const Layer plain = plain_layer(size);
  return {placed(plain.x, mesh, {Replicate()}), placed(plain.weight, mesh, {Shard(0)}),
          placed(plain.bias, mesh, {Shard(0)})};
}

void register_layers(const DeviceMesh& mesh) {
  for (std::int64_t size : {std::int64_t{8}, std::int64_t{256}}) {
    const std::string text = std::to_string(size);
    const std::string name = "linear-relu-sum fwd+bwd " + text + "x" + text;
    register_case(name, "tegula",
                  [layer = distributed_layer(size, mesh)]() mutable { layer.pass(); });
    register_case(name, "plain", [layer = plain_layer(size)]() mutable { layer.pass(); });
  }
}

using MakeTensor = std::function<at::Tensor()>;

std::vector<at::Tensor> many(const MakeTensor& make) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < kParameters; ++i) tensors.push_back(make());
  return tensors;
}

std::vector<at::Tensor> parameters_with_gradients(const MakeTensor& make) {
  std::vector<at::Tensor> parameters = many(make);
  for (at::Tensor& parameter : parameters) {
    parameter.requires_grad_(true);
    parameter.mutable_grad() = make();
  }
  return parameters;
}

void register_updates(const MakeTensor& make, const std::string& who) {
  register_case("adamw step 50 params 8x8", who,
                adamw_by_parameter(parameters_with_gradients(make)));
  register_case("fused adamw 50 params", who, adamw_fused(parameters_with_gradients(make)));
  register_case("foreach_add_ 50 params", who, [ours = many(make), others = many(make)] {
    at::_foreach_add_(ours, others, 1e-6);
  });
  register_case("foreach_addcdiv_ 50 params", who,
                [ours = many(make), above = many(make), below = many(make)] {
                  at::_foreach_addcdiv_(ours, above, below, 1e-6);
                });
}

double allocations_per_call(Op op, const Operands& operands) {
  for (int i = 0; i < 10; ++i) op(operands);
  const std::int64_t before = *allocations_of_this_thread();
  for (int i = 0; i < kCountedCalls; ++i) op(operands);
  return static_cast<double>(*allocations_of_this_thread() - before) / kCountedCalls;
}

std::vector<Measurement> count_allocations(const Operands& ours, const Operands& plain) {
  std::vector<Measurement> found;
  if (!allocations_of_this_thread()) return found;
  for (const OpCase& one : usual_ops()) {
    const std::string name = one.name;
    if (name != "add" && name != "view" && name != "mm") continue;
    for (const auto& [who, operands] : {std::pair("tegula", &ours), std::pair("plain", &plain)}) {
      found.push_back({"dispatch", name + " allocations", who,
                       allocations_per_call(one.op, *operands), "allocations"});
    }
  }
  return found;
}

std::vector<Measurement> measure_alone(const World& world) {
  const DeviceMesh mesh = world.mesh({{"tp", 1}});
  const Operands ours = distributed_operands(mesh);
  const Operands plain = plain_operands(1);
  std::vector<Measurement> found = measure_in_turns(usual_ops(), ours, plain);
  register_layers(mesh);
  const auto make_plain = [] { return at::rand({kSmall, kSmall}).add_(1); };
  register_updates([&] { return placed(make_plain(), mesh, {Shard(0)}); }, "tegula");
  register_updates(make_plain, "plain");
  for (const std::vector<Measurement>& more :
       {measure_in_turns(ops_by_family(), ours, plain), run_registered("dispatch"),
        count_allocations(ours, plain)}) {
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

std::vector<Measurement> measure_together(const World& world) {
  const Operands ours = distributed_operands(world.mesh({{"tp", world.size()}}));
  const Operands plain = plain_operands(world.size());
  const std::string suffix = " cached " + std::to_string(world.size()) + " ranks";
  std::vector<Measurement> found;
  for (const OpCase& one : usual_ops()) {
    for (const auto& [who, operands] : {std::pair("tegula", &ours), std::pair("plain", &plain)}) {
      const auto call = [&one, in = operands] { one.op(*in); };
      found.push_back(
          {"dispatch", one.name + suffix, who, time_of(world.group(), kTogether, call), "us"});
    }
  }
  return found;
}

// Two matrices of a size that no call before had, cut so that their sum, or product, is local.
struct ColdPair {
  at::Tensor left, right;
};

struct ColdCase {
  const char* name;
  at::Tensor (*op)(const at::Tensor&, const at::Tensor&);
  Placements left, right;  // on the first two axes; the others hold copies
  std::int64_t inner;      // size of the dim that a product sums over; 0: no product
};

const ColdCase kColdCases[] = {
    {"add",
     [](const at::Tensor& a, const at::Tensor& b) { return at::add(a, b); },
     {Shard(0), Shard(1)},
     {Shard(0), Shard(1)},
     0},
    {"mm",
     [](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); },
     {Shard(0), Replicate()},
     {Replicate(), Shard(1)},
     8},
};

std::vector<ColdPair> cold_pairs(const ColdCase& one, const DeviceMesh& mesh) {
  Placements left = one.left, right = one.right;
  left.resize(mesh.ndim(), Replicate());
  right.resize(mesh.ndim(), Replicate());
  std::vector<ColdPair> pairs;
  for (std::int64_t i = 0; i < kColdCalls; ++i) {
    const std::int64_t rows = 4 * (i % 10 + 1), columns = 4 * (i / 10 + 1);
    const bool is_product = one.inner != 0;
    pairs.push_back({placed(at::rand({rows, is_product ? one.inner : columns}), mesh, left),
                     placed(at::rand({is_product ? one.inner : rows, columns}), mesh, right)});
  }
  return pairs;
}

double median_of_first_calls(const ColdCase& one, const std::vector<ColdPair>& pairs) {
  std::vector<double> times;
  for (const ColdPair& pair : pairs) {
    const Clock::time_point start = Clock::now();
    one.op(pair.left, pair.right);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return median(times);
}

std::vector<ColdPair> tiles_of(const std::vector<ColdPair>& pairs) {
  std::vector<ColdPair> tiles;
  for (const ColdPair& pair : pairs) tiles.push_back({to_local(pair.left), to_local(pair.right)});
  return tiles;
}

std::vector<Measurement> measure_cold(const World&) {
  std::vector<Measurement> found;
  for (const ColdCase& one : kColdCases) {
    for (int axes : {1, 2, 4}) {
      const World world = World::fake(1 << axes);
      std::vector<MeshAxis> grid;
      for (int axis = 0; axis < axes; ++axis) grid.push_back({std::string(1, "abcd"[axis]), 2});
      const std::vector<ColdPair> pairs = cold_pairs(one, world.mesh(grid));
      const std::string name =
          std::string(one.name) + " cold " + std::to_string(axes) + (axes == 1 ? " axis" : " axes");
      found.push_back({"dispatch", name, "tegula", median_of_first_calls(one, pairs), "us"});
      found.push_back(
          {"dispatch", name, "plain", median_of_first_calls(one, tiles_of(pairs)), "us"});
    }
  }
  return found;
}

}  // namespace

std::vector<Measurement> run_dispatch() {
  std::vector<Measurement> all;
  for (const auto& [ranks, program] :
       {std::pair(1, RankProgram(measure_alone)), std::pair(2, RankProgram(measure_together)),
        std::pair(1, RankProgram(measure_cold))}) {
    const std::vector<Measurement> found = run_processes({ranks}, program);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace tegula::bench
