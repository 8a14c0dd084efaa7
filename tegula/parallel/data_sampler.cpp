#include "tegula/parallel/data_sampler.h"

#include <torch/serialize/archive.h>

#include "tegula/base/error.h"

namespace tegula {

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
