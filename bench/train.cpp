// Training steps: forward, loss, backward and AdamW, on two ranks of one thread each, and plainly
// in one process with two threads. All start from the same weights; the first steps warm up, and
// their losses must agree, with those of the peers too. Then steps of models whose tensors have one
// element, on one rank: what is left of their time is bookkeeping. Every run is in processes of its
// own; figures are medians.
#include "bench/groups.h"
#include "bench/processes.h"
#include "bench/resident.h"
#include "bench/trainer.h"
#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::bench {
namespace {

constexpr int kRanks = 2;
constexpr int kRuns = 5;
constexpr int kFirstSteps = 3;
constexpr int kTimedSteps = 7;

struct Case {
  const char* name;
  Model model;
  Split split;
};

constexpr Case kCases[] = {
    {"mlp tp 2 ranks", Model::Mlp, Split::Tensor},
    {"mlp dp 2 ranks", Model::Mlp, Split::Batch},
    {"mlp fsdp 2 ranks", Model::Mlp, Split::Full},
    {"gpt tp 2 ranks", Model::Gpt, Split::Tensor},
    {"gpt tp vocab 2 ranks", Model::Gpt, Split::TensorAndVocabulary},
    {"gpt sp 2 ranks", Model::Gpt, Split::Sequence},
    {"gpt dp 2 ranks", Model::Gpt, Split::Batch},
    {"gpt fsdp 2 ranks", Model::Gpt, Split::Full},
    {"gpt-wide tp 2 ranks", Model::GptWide, Split::Tensor},
    {"gpt-wide sp 2 ranks", Model::GptWide, Split::Sequence},
    {"gpt-wide dp 2 ranks", Model::GptWide, Split::Batch},
    {"gpt-wide fsdp 2 ranks", Model::GptWide, Split::Full},
};

constexpr Case kBookkeeping[] = {
    {"mlp bookkeeping", Model::MlpOfOnes, Split::Batch},
    {"gpt bookkeeping", Model::GptOfOnes, Split::Batch},
};

Measurement measured(const std::string& name, const char* who, double value, const char* unit) {
  return {"train", name, who, value, unit};
}

std::vector<Measurement> measure(const std::string& name, const char* who, Trainer& trainer,
                                 const PeakMemory& memory, const Group& group) {
  for (int i = 0; i < kFirstSteps; ++i) trainer.step();
  const double loss = trainer.loss();
  const double time = time_of(group, {1, kTimedSteps}, [&] { trainer.step(); });
  return {measured(name, who, time / 1000, "ms"),
          measured(name + " peak memory", who, memory.megabytes(), "MB"),
          measured(name + " third loss", who, loss, kChecksum)};
}

std::vector<Measurement> measure_ours(const Case& one) {
  return run_processes({kRanks}, [&](const World& world) {
    const PeakMemory memory;
    Trainer trainer(one.model, one.split, world.mesh({{kAxis, world.size()}}));
    return measure(one.name, "tegula", trainer, memory, world.group());
  });
}

std::vector<Measurement> measure_plain(const std::string& name, Model model) {
  return run_processes({1, kRanks}, [&](const World& world) {
    const PeakMemory memory;
    Trainer trainer(model);
    return measure(name, "plain", trainer, memory, world.group());
  });
}

// In turns, so that a slow moment of the machine hits both alike.
std::vector<Measurement> measure_bookkeeping(const Case& one) {
  constexpr int kSteps = 20, kRounds = 25;
  return run_processes({1}, [&](const World& world) {
    Trainer ours(one.model, one.split, world.mesh({{kAxis, 1}})), plain(one.model);
    std::vector<double> with, without;
    for (int round = 0; round < kRounds; ++round) {
      with.push_back(time_of(world.group(), {kSteps, 1}, [&] { ours.step(); }));
      without.push_back(time_of(world.group(), {kSteps, 1}, [&] { plain.step(); }));
    }
    return std::vector<Measurement>{measured(one.name, "tegula", median(with), "us"),
                                    measured(one.name, "plain", median(without), "us")};
  });
}

void append(std::vector<Measurement>& list, const std::vector<Measurement>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

std::vector<Measurement> run_once(const Selection& selection) {
  std::vector<Measurement> all;
  for (const Case& one : kCases) {
    if (!selection.has(one.name)) continue;
    append(all, measure_ours(one));
    append(all, measure_plain(one.name, one.model));
  }
  for (const Case& one : kBookkeeping) {
    if (selection.has(one.name)) append(all, measure_bookkeeping(one));
  }
  return all;
}

}  // namespace

std::vector<Measurement> run_train(const Selection& selection) {
  std::vector<std::vector<Measurement>> runs;
  for (int i = 0; i < selection.runs.value_or(kRuns); ++i) runs.push_back(run_once(selection));
  if (runs.front().empty()) {
    throw UsageError("no case of the group train has this in its name")
        .fact("part", in_quotes(selection.only))
        .hint("gpt tp, mlp, fsdp, bookkeeping, ...");
  }
  return medians(runs);
}

}  // namespace tegula::bench
