#include "tegula/parallel/data_sampler.h"

#include <torch/serialize/archive.h>

#include <algorithm>

#include "tegula/base/error.h"

namespace tegula {

namespace {

// A loader's assertion would come too late, and on some ranks only.
void check_parts(const DistributedSampler& sampler, std::int64_t batch) {
  if (batch < 1) {
    throw UsageError("a batch has samples")
        .fact("batch", std::to_string(batch))
        .hint("give 1 or more");
  }
  const std::int64_t rest = sampler.samples() - sampler.state().taken;
  const std::int64_t last = rest % batch;
  for (const std::int64_t size : {std::min(batch, rest), last > 0 ? last : batch}) {
    if (sampler.fewest(std::min(size, rest)) > 0) continue;
    throw UsageError("a batch leaves a rank without samples, which data loaders do not take")
        .fact("batch", std::to_string(size))
        .fact("samples left", std::to_string(rest))
        .hint("choose another batch size, or call dataset.get_batch(sampler.next().samples)");
  }
}

}  // namespace

void DataSampler::reset(std::optional<std::size_t> new_size) {
  const auto samples = static_cast<std::size_t>(sampler_.samples());
  if (new_size && *new_size != samples) {
    throw UsageError("a sampler cannot change its number of samples")
        .fact("samples", std::to_string(samples))
        .fact("asked", std::to_string(*new_size))
        .hint("make a new one");
  }
  const SamplerState& state = sampler_.state();
  const bool goes_on = !is_begun_ && state.taken < sampler_.samples();
  if (!goes_on) sampler_.begin_epoch(state.epoch + 1);
  is_begun_ = true;
}

std::optional<std::vector<std::size_t>> DataSampler::next(std::size_t batch) {
  if (sampler_.state().taken == sampler_.samples()) return std::nullopt;
  check_parts(sampler_, static_cast<std::int64_t>(batch));
  const std::vector<std::int64_t> mine = sampler_.next(static_cast<std::int64_t>(batch)).samples;
  return std::vector<std::size_t>(mine.begin(), mine.end());
}

void DataSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("state", c10::IValue(to_string(sampler_.state())));
}

void DataSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue state;
  archive.read("state", state);
  sampler_.restore(parse_sampler_state(state.toStringRef()));
  is_begun_ = false;
}

}  // namespace tegula
