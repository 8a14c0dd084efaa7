// Redistributions of a tensor between two processes, and beside each the bare collective on the
// same bytes: the difference is what planning, wrapping and laying out cost. Figures are medians
// over jobs.
#include <ATen/ATen.h>

#include "bench/groups.h"
#include "bench/processes.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::bench {
namespace {

constexpr int kJobs = 3;
constexpr int kRanks = 2;

struct Case {
  const char* name;
  std::int64_t size;  // rows and columns of the whole tensor
  Placement from;
  Placement to;
  at::Tensor (*bare)(const Group& group, const at::Tensor& tile);
  Repeats repeats;
};

const Case kCases[] = {
    {"S(0)->R 64MiB",
     4096,
     Shard(0),
     Replicate(),
     [](const Group& group, const at::Tensor& tile) { return group.all_gather(tile, 0); },
     {1, 7}},
    {"P(sum)->R 64MiB",
     4096,
     Partial(),
     Replicate(),
     [](const Group& group, const at::Tensor& tile) {
       return group.all_reduce(tile, ReduceOp::Sum);
     },
     {1, 7}},
    {"P(sum)->S(0) 64MiB",
     4096,
     Partial(),
     Shard(0),
     [](const Group& group, const at::Tensor& tile) {
       return group.reduce_scatter(tile, 0, ReduceOp::Sum);
     },
     {1, 7}},
    {"S(1)->S(0) 64MiB",
     4096,
     Shard(1),
     Shard(0),
     [](const Group& group, const at::Tensor& tile) { return group.all_to_all(tile, 0, 1); },
     {1, 7}},
    {"R->S(0) 4KiB",
     32,
     Replicate(),
     Shard(0),
     [](const Group& group, const at::Tensor& tile) {
       const std::int64_t rows = tile.size(0) / group.size();
       return tile.narrow(0, group.index() * rows, rows).clone();
     },
     {1000, 9}},
};

// A tile that differs from the other rank's unless it is a copy.
at::Tensor tile_of(const Case& one, const Group& group) {
  const std::int64_t part = one.size / group.size();
  const std::int64_t rows = one.from == Placement(Shard(0)) ? part : one.size;
  const std::int64_t columns = one.from == Placement(Shard(1)) ? part : one.size;
  const bool is_copy = one.from == Placement(Replicate());
  return at::arange(rows * columns, at::kFloat).remainder_(1000).reshape({rows, columns}) +
         (is_copy ? 0 : group.index());
}

std::vector<Measurement> measure(const World& world) {
  const Group group = world.group();
  const DeviceMesh mesh = world.mesh({{"tp", world.size()}});
  std::vector<Measurement> found;
  for (const Case& one : kCases) {
    const at::Tensor tile = tile_of(one, group);
    const at::Tensor tensor = from_local(tile, mesh, {one.from});
    at::Tensor ours, bare;
    const std::string name = std::string(one.name) + " " + std::to_string(kRanks) + " ranks";
    const double our_time =
        time_of(group, one.repeats, [&] { ours = redistribute(tensor, {one.to}); });
    const double bare_time = time_of(group, one.repeats, [&] { bare = one.bare(group, tile); });
    check(at::equal(to_local(ours), bare), name);
    found.push_back({"redistribute", name, "tegula", our_time, "us"});
    found.push_back({"redistribute", name, "bare", bare_time, "us"});
  }
  return found;
}

}  // namespace

std::vector<Measurement> run_redistribute() {
  std::vector<std::vector<Measurement>> jobs;
  for (int job = 0; job < kJobs; ++job) jobs.push_back(run_processes({kRanks}, measure));
  return medians(jobs);
}

}  // namespace tegula::bench
