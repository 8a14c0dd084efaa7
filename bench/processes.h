// Benchmarks in processes of their own, and the clock that several of them share.
#pragma once

#include <functional>
#include <vector>

#include "bench/report.h"
#include "tegula/comm/world.h"

namespace tegula::bench {

struct Job {
  int ranks = 1;
  int threads = 1;  // of libtorch, in each rank
};

using RankProgram = std::function<std::vector<Measurement>(const World&)>;

// Runs `program` in fresh processes that form a world. A rank of one thread gets a processor of its
// own while there are enough. Returns what the ranks measured in the order of the first one's list;
// the slowest rank's value counts. InternalError if a rank fails; it has printed why.
std::vector<Measurement> run_processes(const Job& job, const RankProgram& program);

double median(std::vector<double> values);

struct Repeats {
  int calls = 1;   // timed together
  int rounds = 1;  // of which the median counts; one more warms up
};

// Microseconds per call, on the slowest rank. All members call it.
double time_of(const Group& group, const Repeats& repeats, const std::function<void()>& call);

// The medians of several runs' measurements, case by case.
std::vector<Measurement> medians(const std::vector<std::vector<Measurement>>& runs);

// InternalError if the condition does not hold.
void check(bool condition, const std::string& what);

}  // namespace tegula::bench
