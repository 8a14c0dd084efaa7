// Ranks are forked before libtorch has started a thread here, find each other by a job name that no
// other run has, and send their measurements as JSON lines through a pipe each.
#include "bench/processes.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tegula/base/error.h"
#include "tegula/base/launch.h"

namespace tegula::bench {

using namespace inner;

namespace {

using Clock = std::chrono::steady_clock;

void bind_to_processor(const Job& job, int rank) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof(all), &all);
  if (job.threads != 1 || job.ranks > CPU_COUNT(&all)) return;
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

void send(int pipe_end, const std::string& text) {
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t count = write(pipe_end, text.data() + sent, text.size() - sent);
    if (count < 0) throw InternalError("a rank cannot send its measurements");
    sent += static_cast<std::size_t>(count);
  }
}

std::string receive(int pipe_end) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(pipe_end, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(pipe_end);
  return text;
}

[[noreturn]] void be_rank(const Job& job, int rank, const std::string& name,
                          const RankProgram& program, int results) {
  launch::set_launch({rank, job.ranks, rank, job.ranks, name});
  at::set_num_threads(job.threads);
  bind_to_processor(job, rank);
  int code = 0;
  try {
    std::string text;
    for (const Measurement& one : program(World::from_env())) text += to_json(one) + "\n";
    send(results, text);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    code = 1;
  }
  _exit(code);
}

std::vector<Measurement> read_lines(const std::string& text) {
  std::vector<Measurement> measurements;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) measurements.push_back(from_json(line));
  return measurements;
}

bool same_work(const Measurement& a, const Measurement& b) {
  return a.name == b.name && a.who == b.who;
}

std::string name_of_a_new_job() {
  return "bench " + std::to_string(getpid()) + " " +
         std::to_string(Clock::now().time_since_epoch().count());
}

}  // namespace

std::vector<Measurement> run_processes(const Job& job, const RankProgram& program) {
  const std::string name = name_of_a_new_job();
  std::vector<int> results;
  std::vector<pid_t> children;
  for (int rank = 0; rank < job.ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw InternalError("cannot make a pipe");
    const pid_t child = fork();
    if (child < 0) throw InternalError("cannot start a process");
    if (child == 0) be_rank(job, rank, name, program, ends[1]);
    close(ends[1]);
    results.push_back(ends[0]);
    children.push_back(child);
  }
  std::vector<Measurement> slowest;
  for (int end : results) {
    for (const Measurement& mine : read_lines(receive(end))) {
      const auto known = std::find_if(slowest.begin(), slowest.end(),
                                      [&](const Measurement& one) { return same_work(one, mine); });
      if (known == slowest.end()) {
        slowest.push_back(mine);
      } else {
        known->value = std::max(known->value, mine.value);
      }
    }
  }
  bool failed = false;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed = failed || status != 0;
  }
  if (failed) throw InternalError("a rank of the benchmark failed");
  return slowest;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double time_of(const Group& group, const Repeats& repeats, const std::function<void()>& call) {
  std::vector<double> times;
  for (int round = -1; round < repeats.rounds; ++round) {  // the first one warms up
    group.barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < repeats.calls; ++i) call();
    const double mine =
        std::chrono::duration<double, std::micro>(Clock::now() - start).count() / repeats.calls;
    const at::Tensor slowest = group.all_reduce(at::full({1}, mine, at::kDouble), ReduceOp::Max);
    if (round >= 0) times.push_back(slowest.item<double>());
  }
  return median(times);
}

std::vector<Measurement> medians(const std::vector<std::vector<Measurement>>& runs) {
  std::vector<Measurement> result = runs.front();
  for (Measurement& one : result) {
    std::vector<double> values;
    for (const std::vector<Measurement>& run : runs) {
      for (const Measurement& other : run) {
        if (same_work(one, other)) values.push_back(other.value);
      }
    }
    one.value = median(values);
  }
  return result;
}

void check(bool condition, const std::string& what) {
  if (!condition) throw InternalError("the benchmark got a wrong result: " + what);
}

}  // namespace tegula::bench
