#include "bench/google.h"

#include <algorithm>
#include <map>

namespace tegula::bench {
namespace {

constexpr int kRepetitions = 5;
constexpr double kSecondsPerRepetition = 0.05;
const std::string kWho = " by ";

// Keeps the time of every repetition.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      names_[run.family_index] = run.run_name.function_name;
      times_[run.family_index].push_back(run.GetAdjustedRealTime());
    }
  }
  std::vector<Measurement> medians(const std::string& group) {
    std::vector<Measurement> result;
    for (auto& [number, times] : times_) {
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
      std::nth_element(times.begin(), middle, times.end());
      const std::string& name = names_[number];
      const std::size_t end = name.find(kWho);
      const bool says_who = end != std::string::npos;
      result.push_back({group, name.substr(0, end),
                        says_who ? name.substr(end + kWho.size()) : "tegula", *middle, "us"});
    }
    return result;
  }

 private:
  // by the order in which they were registered
  std::map<std::int64_t, std::string> names_;
  std::map<std::int64_t, std::vector<double>> times_;
};

}  // namespace

std::vector<Measurement> run_registered(const std::string& group) {
  std::string repetitions = "--benchmark_repetitions=" + std::to_string(kRepetitions);
  std::string seconds = "--benchmark_min_time=" + std::to_string(kSecondsPerRepetition);
  std::string program = "tegula-bench";
  std::string turns = "--benchmark_enable_random_interleaving=true";
  char* arguments[] = {program.data(), repetitions.data(), seconds.data(), turns.data(), nullptr};
  int count = 4;
  benchmark::Initialize(&count, arguments);
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::ClearRegisteredBenchmarks();
  return collector.medians(group);
}

}  // namespace tegula::bench
