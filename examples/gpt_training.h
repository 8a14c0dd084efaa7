// The steps of the example's training, and how they are shown while they run.
#pragma once

#include <sys/resource.h>
#include <tegula/tegula.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gpt_model.h"
#include "gpt_report.h"
#include "gpt_text.h"

namespace gpt {

struct Options {
  std::vector<std::string> files;
  Shape shape;
  std::int64_t steps = 1500, batch = 16, checked = 100, sample = 300;
  double rate = 2e-3, tolerance = 1e-4;
  std::uint64_t seed = 1;
  std::string report;  // where to write it; empty: nowhere
  std::string folder;  // of checkpoints; empty: none
  std::int64_t every = 100, stop = 0;
  bool resume = false;
};

// One way to train, on plain tensors and on distributed ones.
class Training {
 public:
  Training(const Options& options, const Text& text, std::shared_ptr<Model> model)
      : options_(options),
        text_(text),
        model_(std::move(model)),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(options.rate)),
        random_(static_cast<std::uint32_t>(options.seed)) {}

  // `place` brings a batch to where the model is. Returns the loss before the step.
  template <class Place>
  double step(const Place& place) {
    const auto [characters, next] = text_.sample(options_.batch, options_.shape.length, random_);
    const at::Tensor loss = model_->loss(place(characters), place(next));
    optimizer_.zero_grad();
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

  // All that the next steps depend on.
  void add_to(tegula::State& state) {
    state.add("model", *model_).add("optimizer", optimizer_, *model_);
    state.add(
        "batches",
        [this] {
          std::ostringstream text;
          text << random_;
          return text.str();
        },
        [this](const tegula::StateValue& value) {
          std::istringstream(std::get<std::string>(value)) >> random_;
        });
  }

  tegula::MemoryReport expected_memory() const {
    return tegula::memory_report(*model_, optimizer_);
  }

  // What this rank holds of a distributed model.
  RankMemory memory() const {
    const auto bytes = [](const at::Tensor& tensor) {
      return tensor.defined()
                 ? static_cast<std::int64_t>(tegula::to_local(tensor).storage().nbytes())
                 : 0;
    };
    RankMemory memory;
    for (const at::Tensor& parameter : model_->parameters()) {
      memory.parameters += bytes(parameter);
      memory.gradients += bytes(parameter.grad());
    }
    for (const auto& [parameter, state] : optimizer_.state()) {
      const auto& moments = static_cast<const torch::optim::AdamWParamState&>(*state);
      memory.state += bytes(moments.exp_avg()) + bytes(moments.exp_avg_sq());
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    memory.peak = 1024 * usage.ru_maxrss;
    return memory;
  }

 private:
  const Options& options_;
  const Text& text_;
  std::shared_ptr<Model> model_;
  torch::optim::AdamW optimizer_;
  std::mt19937 random_;
};

// One line, drawn again and again on a terminal (`tegula run` says if there is one); elsewhere
// about ten lines. Counts what this rank communicates meanwhile.
class Progress {
 public:
  // After `done` steps that an earlier run did.
  Progress(const Options& options, const tegula::World& world, std::int64_t done)
      : options_(options), world_(world), log_(world), before_(done), done_(done) {}

  void step_done(double loss) {
    ++done_;
    for (const tegula::CommEntry& entry : log_.entries()) {
      tegula::add_to(communication_, entry);
      waited_ += entry.seconds;
    }
    log_.clear();
    if (world_.rank() == 0) show(loss);
  }

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double tokens() const {
    return static_cast<double>((done_ - before_) * options_.batch * options_.shape.length);
  }
  const std::vector<tegula::CommTotal>& communication() const { return communication_; }

 private:
  static double resident_megabytes() {
    long pages = 0;
    if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
      std::fclose(file);
    }
    return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
  }

  void show(double loss) const {
    const bool is_last = done_ == options_.steps;
    const std::int64_t every = std::max<std::int64_t>(1, options_.steps / 10);
    if (!on_terminal_ && done_ % every != 0 && !is_last) return;
    const auto filled = static_cast<std::size_t>(20 * done_ / options_.steps);
    std::printf("[%s%s] step %4ld  loss %.3f  %6.0f tokens/s  %.0f MB  %2.0f%% communication%c",
                std::string(filled, '#').c_str(), std::string(20 - filled, '.').c_str(),
                static_cast<long>(done_), loss, tokens() / seconds(), resident_megabytes(),
                100 * waited_ / seconds(), on_terminal_ && !is_last ? '\r' : '\n');
    std::fflush(stdout);
  }

  const Options& options_;
  tegula::World world_;
  bool on_terminal_ = isatty(STDOUT_FILENO) != 0 || std::getenv("TEGULA_TERMINAL") != nullptr;
  tegula::CommLog log_;
  std::vector<tegula::CommTotal> communication_;
  std::int64_t before_, done_;
  double waited_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace gpt
