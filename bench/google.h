// Google Benchmark as the clock: runs what was registered and returns medians.
#pragma once

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/report.h"

namespace tegula::bench {

// Runs all benchmarks registered since the last call, each several times and in turns with the
// others, and forgets them. The name of a benchmark is its case, or "case by who" (who: "tegula"
// if not said); values are medians in microseconds.
std::vector<Measurement> run_registered(const std::string& group);

}  // namespace tegula::bench
