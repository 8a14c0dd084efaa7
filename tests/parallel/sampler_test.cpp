// Every sample once per epoch, in batches that do not depend on the number of ranks.
#include "tegula/parallel/sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/data_sampler.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace sampler_test {

using Samples = std::vector<std::int64_t>;

Samples in_order(std::int64_t count) {
  Samples all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Samples epoch_of(std::int64_t samples, std::int64_t seed, std::int64_t epoch) {
  Samples all;
  for (std::int64_t place = 0; place < samples; ++place) {
    all.push_back(shuffled_sample(place, samples, seed, epoch));
  }
  return all;
}

TEST(Shuffling, IsAPermutationOfAnyNumberOfSamples) {
  for (std::int64_t samples = 1; samples <= 70; ++samples) {
    Samples epoch = epoch_of(samples, 5, samples);
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, in_order(samples)) << samples;
  }
}

TEST(Shuffling, DiffersBetweenEpochsAndSeeds) {
  const std::set<Samples> all{in_order(40), epoch_of(40, 1, 0), epoch_of(40, 1, 1),
                              epoch_of(40, 2, 0), epoch_of(40, -1, 0)};
  EXPECT_EQ(all.size(), 5U);
}

// Each sample stands at each place about as often as at others: 200 times of 4,000.
TEST(Shuffling, PrefersNoPlace) {
  std::map<std::pair<std::int64_t, std::int64_t>, int> counts;
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    for (std::int64_t place = 0; place < 20; place += 7) {
      ++counts[{place, shuffled_sample(place, 20, 3, epoch)}];
    }
  }
  EXPECT_EQ(counts.size(), 60U);
  for (const auto& [at, count] : counts) EXPECT_NEAR(count, 200, 75) << at.first << at.second;
}

TEST(Shuffling, TakesHugeNumbersOfSamples) {
  const std::int64_t samples = std::int64_t{1} << 62;
  std::set<std::int64_t> seen;
  for (std::int64_t place = 0; place < 100; ++place) {
    const std::int64_t sample = shuffled_sample(samples - 1 - place, samples, 1, 0);
    EXPECT_TRUE(sample >= 0 && sample < samples);
    seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 100U);
}

// The batches of some steps on some ranks, as one rank would see them.
std::vector<Samples> batches_on(int ranks, std::int64_t samples, const SamplerOptions& options,
                                int steps, const SamplerState& from = {}) {
  std::vector<Samples> batches(static_cast<std::size_t>(steps));
  std::vector<std::vector<Samples>> parts(static_cast<std::size_t>(ranks), batches);
  run_impatient(ranks, [&](World& world) {
    DistributedSampler sampler(samples, world.mesh({{"dp", ranks}}), options);
    const CommLog log(world);
    if (!(from == SamplerState())) sampler.restore(from);
    for (std::size_t step = 0; step < batches.size(); ++step) {
      parts[static_cast<std::size_t>(world.rank())][step] = sampler.next().samples;
    }
    EXPECT_TRUE(log.empty());
  });
  for (const std::vector<Samples>& part : parts) {
    for (std::size_t step = 0; step < batches.size(); ++step) {
      batches[step].insert(batches[step].end(), part[step].begin(), part[step].end());
    }
  }
  return batches;
}

TEST(DistributedSampler, GivesTheSameBatchesOnAnyNumberOfRanks) {
  const SamplerOptions options{.batch = 5, .seed = 7};
  const std::vector<Samples> alone = batches_on(1, 13, options, 9);
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(batches_on(ranks, 13, options, 9), alone) << ranks;
}

TEST(DistributedSampler, GivesEachSampleOncePerEpoch) {
  const std::vector<Samples> batches = batches_on(4, 13, {.batch = 6, .seed = 7}, 6);
  for (const std::size_t epoch : {0U, 1U}) {
    Samples all;
    for (std::size_t k = 0; k < 3; ++k) {
      const Samples& batch = batches[3 * epoch + k];
      EXPECT_EQ(batch.size(), k == 2 ? 1U : 6U);  // three ranks have nothing of the last
      all.insert(all.end(), batch.begin(), batch.end());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, in_order(13));
  }
}

TEST(DistributedSampler, GoesOnToTheSampleOnAnotherNumberOfRanks) {
  const SamplerOptions options{.batch = 5, .seed = 7};
  DistributedSampler alone(13, options);
  std::vector<Samples> rest;
  for (int step = 0; step < 4; ++step) alone.next();
  const SamplerState state = parse_sampler_state(to_string(alone.state()));
  EXPECT_EQ(to_string(state), "seed=7, epoch=1, taken=5");
  for (int step = 0; step < 4; ++step) rest.push_back(alone.next().samples);
  EXPECT_EQ(batches_on(3, 13, {.batch = 5, .seed = 99}, 4, state), rest);
}

TEST(DistributedSampler, CutsBatchesAsShardsAreCut) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    DistributedSampler sampler(9, mesh["dp"], {.batch = 5, .order = SampleOrder::InOrder});
    for (const std::int64_t begin : {0, 5}) {
      const SampleBatch batch = sampler.next();
      const at::Tensor whole = at::arange(begin, begin + batch.size, at::kLong);
      EXPECT_EQ(
          difference(at::tensor(batch.samples, at::kLong), to_local(shard_batch(whole, mesh))), "");
    }
  });
}

TEST(DistributedSampler, RefusesWhatCannotBe) {
  const auto made = [](std::int64_t samples, std::int64_t batch) {
    return error_of([&] { DistributedSampler(samples, SamplerOptions{.batch = batch}); });
  };
  EXPECT_TRUE(contains(made(0, 1), "a sampler needs samples"));
  EXPECT_TRUE(contains(made(3, 0), "a batch has samples"));
  DistributedSampler sampler(3, SamplerOptions{});
  EXPECT_TRUE(contains(error_of([&] { sampler.restore({.taken = 4}); }), "more samples than"));
  EXPECT_TRUE(contains(error_of([&] { sampler.restore({.epoch = -1}); }), "counts from 0"));
  for (const char* text :
       {"", "seed=1", "seed=1, epoch=0, taken=-2", "seed=1, epoch=-1, taken=2",
        "seed=1, epoch=0, taken=99999999999999999999", "seed=1, epoch=0, taken=1 x"}) {
    EXPECT_TRUE(contains(error_of([&] { parse_sampler_state(text); }), "tegula:")) << text;
  }
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 1}});
    EXPECT_TRUE(contains(error_of([&] { DistributedSampler(3, mesh, {}); }), "one axis"));
  });
}

// torch::data -------------------------------------------------------------------------------------

struct Squares : torch::data::datasets::BatchDataset<Squares, std::vector<std::int64_t>> {
  std::vector<std::int64_t> get_batch(at::ArrayRef<std::size_t> request) override {
    std::vector<std::int64_t> squares;
    for (const std::size_t k : request) squares.push_back(static_cast<std::int64_t>(k * k));
    return squares;
  }
  std::optional<std::size_t> size() const override { return 11; }
};

TEST(DataSampler, GivesALoaderItsPartOfEachEpoch) {
  std::mutex mutex;
  std::vector<Samples> epochs(2);
  run_impatient(3, [&](World& world) {
    DistributedSampler sampler(11, world.mesh({{"dp", 3}}), {.seed = 3});
    auto loader = torch::data::make_data_loader(Squares(), DataSampler(sampler),
                                                torch::data::DataLoaderOptions(6));
    for (Samples& epoch : epochs) {
      int batches = 0;
      for (const std::vector<std::int64_t>& batch : *loader) {
        const std::lock_guard lock(mutex);
        epoch.insert(epoch.end(), batch.begin(), batch.end());
        ++batches;
      }
      EXPECT_EQ(batches, 2);
    }
  });
  for (Samples& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, (Samples{0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100}));
  }
}

TEST(DataSampler, RefusesBatchesThatLeaveARankWithoutSamples) {
  run_impatient(3, [&](World& world) {
    const DistributedSampler sampler(11, world.mesh({{"dp", 3}}), {});
    for (const std::size_t batch : {1U, 2U, 3U, 4U, 5U, 10U}) {
      DataSampler data(sampler);
      const std::string text = error_of([&] { data.next(batch); });
      EXPECT_TRUE(contains(text, "a batch leaves a rank without samples")) << batch << text;
    }
    for (const std::size_t batch : {6U, 8U, 11U, 99U}) {
      DataSampler data(sampler);
      int batches = 0;
      while (const auto request = data.next(batch)) {
        EXPECT_FALSE(request->empty());
        ++batches;
      }
      EXPECT_GT(batches, 0);
    }
  });
}

TEST(DataSampler, RefusesBatchesOfNoSamples) {
  DataSampler data{DistributedSampler(7, SamplerOptions{})};
  EXPECT_TRUE(contains(error_of([&] { data.next(0); }), "a batch has samples"));
}

TEST(DataSampler, GoesOnInTheEpochThatItWasSavedIn) {
  DataSampler sampler{DistributedSampler(7, SamplerOptions{.seed = 3})};
  sampler.reset();
  const auto first = sampler.next(4);
  DistributedSampler again(7, SamplerOptions{});
  again.restore(sampler.state());
  DataSampler rest(again);
  rest.reset();
  EXPECT_EQ(rest.next(4), sampler.next(4));
  EXPECT_EQ(rest.next(4), std::nullopt);
  rest.reset();
  EXPECT_EQ(rest.state(), (SamplerState{.seed = 3, .epoch = 1, .taken = 0}));
  EXPECT_TRUE(contains(error_of([&] { rest.reset(8); }), "cannot change its number of samples"));
}

}  // namespace sampler_test
}  // namespace tegula
