// Collectives between processes on this machine: ours through the public interface, gloo's own
// through c10d, MPI's own where it is installed, and a memcpy of the whole tensor on all ranks at
// once as the bound. Each job is a fresh set of processes, and jobs of ours and of MPI's take
// turns; the figures are medians over jobs. The slowest rank's time counts.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>

#include "bench/groups.h"
#include "bench/processes.h"

namespace tegula::bench {
namespace {

constexpr int kJobs = 5;

struct Size {
  const char* name;
  std::int64_t bytes;
  Repeats repeats;
};

constexpr Size kSizes[] = {{"4KiB", 4 << 10, {300, 9}}, {"64MiB", 64 << 20, {1, 7}}};

void measure_ours(const Group& group, const Size& size, const std::string& suffix,
                  std::vector<Measurement>& found) {
  const std::int64_t n = group.size();
  const std::int64_t count = size.bytes / 4;
  const at::Tensor whole = at::full({count}, group.index() + 1, at::kFloat);
  const at::Tensor part = whole.narrow(0, 0, count / n);
  const at::Tensor rows = whole.view({-1, 32 * n});
  const float sum = static_cast<float>(n * (n + 1) / 2);
  at::Tensor result;
  const auto record = [&](const std::string& name, const std::function<void()>& call) {
    found.push_back({"comm", name + suffix, "tegula", time_of(group, size.repeats, call), "us"});
  };
  record("all-reduce", [&] { result = group.all_reduce(whole, ReduceOp::Sum); });
  check(at::all(result == sum).item<bool>(), "all-reduce");
  record("all-gather", [&] { result = group.all_gather(part, 0); });
  check(result.sum(at::kDouble).item<double>() == static_cast<double>(count / n) * sum,
        "all-gather");
  record("reduce-scatter", [&] { result = group.reduce_scatter(whole, 0, ReduceOp::Sum); });
  check(at::all(result == sum).item<bool>(), "reduce-scatter");
  record("all-to-all", [&] { result = group.all_to_all(whole, 0, 0); });
  check(result.sum(at::kDouble).item<double>() == static_cast<double>(count / n) * sum,
        "all-to-all");
  record("all-to-all dim 1 to 0", [&] { result = group.all_to_all(rows, 1, 0); });
  check(result.sum(at::kDouble).item<double>() == static_cast<double>(count / n) * sum,
        "all-to-all of columns");
  result = at::empty_like(whole);
  const double bound = time_of(group, size.repeats, [&] {
    std::memcpy(result.data_ptr(), whole.data_ptr(), static_cast<std::size_t>(size.bytes));
  });
  for (const char* name :
       {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "all-to-all dim 1 to 0"}) {
    found.push_back({"comm", name + suffix, "memcpy", bound, "us"});
  }
}

// A list of small tensors, as gradients of small layers are: in one call, and one by one.
void measure_list(const Group& group, std::vector<Measurement>& found) {
  constexpr Repeats kRepeats{20, 9};
  const std::vector<at::Tensor> list(50, at::ones({1024}));
  const std::string name =
      "all-reduce 50 tensors of 4KiB " + std::to_string(group.size()) + " ranks";
  const double coalesced =
      time_of(group, kRepeats, [&] { group.all_reduce_coalesced(list, ReduceOp::Sum); });
  const double single = time_of(group, kRepeats, [&] {
    for (const at::Tensor& tensor : list) group.all_reduce(tensor, ReduceOp::Sum);
  });
  found.push_back({"comm", name, "tegula", coalesced, "us"});
  found.push_back({"comm", name, "single calls", single, "us"});
}

void measure_gloo(const World& world, const Group& clock, const Size& size,
                  const std::string& suffix, std::vector<Measurement>& found) {
  const Group group = world.group(clock.ranks(), {"bench", "gloo", std::nullopt});
  const c10::intrusive_ptr<c10d::Backend> gloo = group.backend();
  const std::int64_t count = size.bytes / 4;
  at::Tensor whole = at::ones({count});
  at::Tensor part = at::ones({count / group.size()});
  at::Tensor result = at::empty({count});
  std::vector<std::int64_t> even;
  std::vector<at::Tensor> tensors{whole};
  const Repeats fewer{std::min(size.repeats.calls, 20), std::min(size.repeats.rounds, 5)};
  const auto record = [&](const std::string& name, const std::function<void()>& call) {
    found.push_back({"comm", name + suffix, "gloo", time_of(clock, fewer, call), "us"});
  };
  c10d::AllreduceOptions largest;
  largest.reduceOp = c10d::ReduceOp::MAX;
  record("all-reduce", [&] { gloo->allreduce(tensors, largest)->wait(); });
  record("all-gather", [&] { gloo->_allgather_base(result, part)->wait(); });
  record("reduce-scatter", [&] { gloo->_reduce_scatter_base(part, whole)->wait(); });
  record("all-to-all", [&] { gloo->alltoall_base(result, whole, even, even)->wait(); });
}

std::vector<Measurement> measure(const World& world) {
  std::vector<Measurement> found;
  const Group group = world.group();
  for (const Size& size : kSizes) {
    if (size.bytes > (1 << 20) && world.size() > 4) continue;
    const std::string suffix =
        std::string(" ") + size.name + " " + std::to_string(world.size()) + " ranks";
    measure_ours(group, size, suffix, found);
    measure_gloo(world, group, size, suffix, found);
  }
  measure_list(group, found);
  return found;
}

// One job of tegula-bench-mpi, which lies beside this program; nothing if there is no MPI.
std::vector<Measurement> run_mpi_job(int ranks) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = self.parent_path() / "tegula-bench-mpi";
  if (!std::filesystem::exists(program)) return {};
  const std::string command = "mpirun --allow-run-as-root --oversubscribe -n " +
                              std::to_string(ranks) + " '" + program + "' 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::vector<Measurement> measurements;
  char line[4096];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) {
    if (line[0] == '{') measurements.push_back(from_json(line));
  }
  if (pclose(pipe) != 0) return {};
  return measurements;
}

}  // namespace

std::vector<Measurement> run_comm() {
  std::vector<Measurement> measurements;
  for (int ranks : {2, 4, 8}) {
    std::vector<std::vector<Measurement>> jobs;
    for (int job = 0; job < kJobs; ++job) {
      jobs.push_back(run_processes({ranks}, measure));
      const std::vector<Measurement> theirs = run_mpi_job(ranks);
      jobs.back().insert(jobs.back().end(), theirs.begin(), theirs.end());
    }
    const std::vector<Measurement> middle = medians(jobs);
    measurements.insert(measurements.end(), middle.begin(), middle.end());
  }
  return measurements;
}

}  // namespace tegula::bench
