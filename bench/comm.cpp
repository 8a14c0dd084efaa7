// Collectives between processes on this machine: ours through the public interface, gloo's own
// through c10d, MPI's own where it is installed, and a memcpy of the whole tensor on all ranks at
// once as the bound. Each job is a fresh set of processes, and jobs of ours and of MPI's take
// turns; the figures are medians over jobs. The slowest rank's time counts.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>

#include "bench/groups.h"
#include "tegula/base/error.h"
#include "tegula/comm/world.h"

namespace tegula::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kJobs = 5;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Size {
  const char* name;
  std::int64_t bytes;
  int calls;   // timed together
  int rounds;  // of which the median counts
};

constexpr Size kSizes[] = {{"4KiB", 4 << 10, 300, 9}, {"64MiB", 64 << 20, 1, 7}};

// Microseconds per call, on the slowest rank.
double time_of(const Group& group, const Size& size, const std::function<void()>& call) {
  std::vector<double> times;
  for (int round = -1; round < size.rounds; ++round) {  // the first one warms up
    group.barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < size.calls; ++i) call();
    const double mine =
        std::chrono::duration<double, std::micro>(Clock::now() - start).count() / size.calls;
    const at::Tensor slowest = group.all_reduce(at::full({1}, mine, at::kDouble), ReduceOp::Max);
    if (round >= 0) times.push_back(slowest.item<double>());
  }
  return median(times);
}

void check(bool condition, const std::string& what) {
  if (!condition) throw InternalError("the benchmark got a wrong result: " + what);
}

using Times = std::map<std::string, double>;  // by case and who

void measure_ours(const Group& group, const Size& size, const std::string& suffix, Times& times) {
  const std::int64_t n = group.size();
  const std::int64_t count = size.bytes / 4;
  const at::Tensor whole = at::full({count}, group.index() + 1, at::kFloat);
  const at::Tensor part = whole.narrow(0, 0, count / n);
  const at::Tensor rows = whole.view({-1, 32 * n});
  const float sum = static_cast<float>(n * (n + 1) / 2);
  at::Tensor result;
  const auto record = [&](const std::string& name, const std::function<void()>& call) {
    times[name + suffix + "\ttegula"] = time_of(group, size, call);
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
  const double bound = time_of(group, size, [&] {
    std::memcpy(result.data_ptr(), whole.data_ptr(), static_cast<std::size_t>(size.bytes));
  });
  for (const char* name :
       {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "all-to-all dim 1 to 0"}) {
    times[name + suffix + "\tmemcpy"] = bound;
  }
}

void measure_gloo(const World& world, const Group& clock, const Size& size,
                  const std::string& suffix, Times& times) {
  const Group group = world.group(clock.ranks(), {"bench", "gloo", std::nullopt});
  const c10::intrusive_ptr<c10d::Backend> gloo = group.backend();
  const std::int64_t count = size.bytes / 4;
  at::Tensor whole = at::ones({count});
  at::Tensor part = at::ones({count / group.size()});
  at::Tensor result = at::empty({count});
  std::vector<std::int64_t> even;
  std::vector<at::Tensor> tensors{whole};
  Size fewer = size;
  fewer.calls = std::min(size.calls, 20);
  fewer.rounds = std::min(size.rounds, 5);
  const auto record = [&](const std::string& name, const std::function<void()>& call) {
    times[name + suffix + "\tgloo"] = time_of(clock, fewer, call);
  };
  c10d::AllreduceOptions largest;
  largest.reduceOp = c10d::ReduceOp::MAX;
  record("all-reduce", [&] { gloo->allreduce(tensors, largest)->wait(); });
  record("all-gather", [&] { gloo->_allgather_base(result, part)->wait(); });
  record("reduce-scatter", [&] { gloo->_reduce_scatter_base(part, whole)->wait(); });
  record("all-to-all", [&] { gloo->alltoall_base(result, whole, even, even)->wait(); });
}

void measure(const World& world, Times& times) {
  const Group group = world.group();
  for (const Size& size : kSizes) {
    if (size.bytes > (1 << 20) && world.size() > 4) continue;
    const std::string suffix =
        std::string(" ") + size.name + " " + std::to_string(world.size()) + " ranks";
    measure_ours(group, size, suffix, times);
    measure_gloo(world, group, size, suffix, times);
  }
}

// Ranks get a processor each while there are enough, as mpirun gives them.
void bind_to_processor(int rank, int ranks) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof(all), &all);
  if (ranks > CPU_COUNT(&all)) return;
  int seen = 0;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &all) || seen++ != rank) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

[[noreturn]] void be_rank(int rank, int ranks, const std::string& job, int results) {
  setenv("TEGULA_RANK", std::to_string(rank).c_str(), 1);
  setenv("TEGULA_WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("TEGULA_JOB", job.c_str(), 1);
  at::set_num_threads(1);
  bind_to_processor(rank, ranks);
  int code = 0;
  try {
    Times times;
    measure(World::from_env(), times);
    std::string text;
    for (const auto& [name, time] : times) text += name + "\t" + std::to_string(time) + "\n";
    if (rank == 0 && write(results, text.data(), text.size()) < 0) code = 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    code = 1;
  }
  _exit(code);
}

// Runs one job and returns lines of case, who and time, parted by tabs.
std::string run_job(int ranks, int number) {
  int ends[2];
  if (pipe(ends) != 0) throw UsageError("cannot make a pipe");
  const std::string job = "bench " + std::to_string(getpid()) + " " + std::to_string(ranks) + " " +
                          std::to_string(number);
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) be_rank(rank, ranks, job, ends[1]);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  bool failed = false;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed = failed || status != 0;
  }
  if (failed) throw InternalError("a rank of the benchmark failed");
  return text;
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
    std::map<std::pair<std::string, std::string>, std::vector<double>> all;
    for (int job = 0; job < kJobs; ++job) {
      std::istringstream lines(run_job(ranks, job));
      for (std::string name, who, time; std::getline(lines, name, '\t') &&
                                        std::getline(lines, who, '\t') &&
                                        std::getline(lines, time);) {
        all[{name, who}].push_back(std::stod(time));
      }
      for (const Measurement& theirs : run_mpi_job(ranks)) {
        all[{theirs.name, theirs.who}].push_back(theirs.value);
      }
    }
    for (const auto& [key, times] : all)
      measurements.push_back({"comm", key.first, key.second, median(times), "us"});
  }
  return measurements;
}

}  // namespace tegula::bench
