#include "bench/google.h"

#include <algorithm>
#include <map>

namespace tegula::bench {
namespace {

constexpr int kRepetitions = 5;
constexpr double kSecondsPerRepetition = 0.05;

// Keeps the time of every repetition.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      const std::string& name = run.run_name.function_name;
      if (times_.try_emplace(name).second) order_.push_back(name);
      times_[name].push_back(run.GetAdjustedRealTime());
    }
  }
  std::vector<Measurement> medians(const std::string& group) {
    std::vector<Measurement> result;
    for (const std::string& name : order_) {
      std::vector<double>& times = times_[name];
      std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                       times.end());
      result.push_back({group, name, "tegula", times[times.size() / 2], "us"});
    }
    return result;
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> times_;
};

}  // namespace

std::vector<Measurement> run_registered(const std::string& group) {
  std::string repetitions = "--benchmark_repetitions=" + std::to_string(kRepetitions);
  std::string seconds = "--benchmark_min_time=" + std::to_string(kSecondsPerRepetition);
  std::string program = "tegula-bench";
  char* arguments[] = {program.data(), repetitions.data(), seconds.data(), nullptr};
  int count = 3;
  benchmark::Initialize(&count, arguments);
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::ClearRegisteredBenchmarks();
  return collector.medians(group);
}

}  // namespace tegula::bench
