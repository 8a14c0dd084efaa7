// Training steps: forward, loss, backward and AdamW, on two ranks of one thread each, and plainly
// in one process with two threads. All start from the same weights; the first steps warm up, and
// their losses must agree.
#include <algorithm>
#include <cmath>

#include "bench/groups.h"
#include "bench/processes.h"
#include "bench/trainer.h"
#include "tegula/base/error.h"

namespace tegula::bench {
namespace {

constexpr int kRanks = 2;
constexpr int kFirstSteps = 3;
constexpr int kTimedSteps = 7;
constexpr double kTolerance = 1e-4;

struct Case {
  const char* name;
  Model model;
  Split split;
};

constexpr Case kCases[] = {
    {"mlp tp 2 ranks", Model::Mlp, Split::Tensor},
    {"mlp dp 2 ranks", Model::Mlp, Split::Batch},
    {"gpt tp 2 ranks", Model::Gpt, Split::Tensor},
    {"gpt tp vocab 2 ranks", Model::Gpt, Split::TensorAndVocabulary},
    {"gpt dp 2 ranks", Model::Gpt, Split::Batch},
};

std::string loss_case(const Case& one) { return std::string(one.name) + " third loss"; }

std::vector<Measurement> measure(const Case& one, const std::string& who, Trainer& trainer,
                                 const Group& group) {
  for (int i = 0; i < kFirstSteps; ++i) trainer.step();
  const double loss = trainer.loss();
  const double time = time_of(group, {1, kTimedSteps}, [&] { trainer.step(); });
  return {{"train", one.name, who, time / 1000, "ms"},
          {"train", loss_case(one), who, loss, "loss"}};
}

std::vector<Measurement> measure_ours(const Case& one) {
  return run_processes({kRanks}, [&](const World& world) {
    Trainer trainer(one.model, one.split, world.mesh({{"tp", world.size()}}));
    return measure(one, "tegula", trainer, world.group());
  });
}

std::vector<Measurement> measure_plain(const Case& one) {
  return run_processes({1, kRanks}, [&](const World& world) {
    Trainer trainer(one.model);
    return measure(one, "plain", trainer, world.group());
  });
}

void check_losses(const Measurement& ours, const Measurement& plain) {
  if (std::abs(ours.value - plain.value) <= kTolerance * std::max(1.0, std::abs(plain.value)))
    return;
  throw InternalError("a distributed model learns otherwise than the plain one")
      .fact("case", ours.name)
      .fact("tegula", std::to_string(ours.value))
      .fact("plain", std::to_string(plain.value));
}

}  // namespace

std::vector<Measurement> run_train() {
  std::vector<Measurement> all;
  for (const Case& one : kCases) {
    const std::vector<Measurement> ours = measure_ours(one);
    const std::vector<Measurement> plain = measure_plain(one);
    check_losses(ours.back(), plain.back());
    all.insert(all.end(), ours.begin(), ours.end());
    all.insert(all.end(), plain.begin(), plain.end());
  }
  return all;
}

}  // namespace tegula::bench
