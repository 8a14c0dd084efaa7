// torch::data with the samples of each rank.
//
//   auto loader = torch::data::make_data_loader(dataset, DataSampler(sampler),
//                                               torch::data::DataLoaderOptions(512));
//   for (auto& batch : *loader) ...                    // one epoch
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "tegula/parallel/sampler.h"

namespace tegula {

// A DistributedSampler for data loaders. Their batch size is that of all ranks together, and their
// drop_last stays off: a part is shorter than a batch. Loaders take no empty requests, so a batch
// size that would leave a rank without samples in some batch of the epoch is a UsageError, on all
// ranks, when the first batch is asked for; there, dataset.get_batch(sampler.next().samples) does.
class DataSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit DataSampler(DistributedSampler sampler) : sampler_(std::move(sampler)) {}

  // The next epoch, for a loader's begin(); the first time, the rest of the one that the sampler is
  // in. UsageError for another number of samples.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  // None at the end of the epoch; else at least one sample.
  std::optional<std::vector<std::size_t>> next(std::size_t batch) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  const SamplerState& state() const { return sampler_.state(); }

 private:
  DistributedSampler sampler_;
  bool is_begun_ = false;
};

}  // namespace tegula
