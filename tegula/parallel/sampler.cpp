// The idea: a permutation that can be asked for one place at a time. A Feistel network permutes the
// numbers below a power of four; where its answer is no sample, it is asked again with the answer,
// which walks along a cycle back into the samples (fewer than four times on average).
#include "tegula/parallel/sampler.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/philox.h"
#include "tegula/base/text.h"
#include "tegula/comm/world.h"

namespace tegula {

using namespace inner;

namespace {

constexpr int kRounds = 8;

std::uint64_t permuted(std::uint64_t number, int half_bits, std::uint64_t seed,
                       std::uint64_t epoch) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = number >> half_bits;
  std::uint64_t right = number & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    // a half has at most 32 bits, so the round stands above it
    const std::uint64_t mixed = random_bits(seed, right | round << 32, epoch).first & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return left << half_bits | right;
}

void check(bool is_right, const char* sentence, const char* name, std::int64_t value,
           const char* hint) {
  if (is_right) return;
  throw UsageError(sentence).fact(name, std::to_string(value)).hint(hint);
}

void check_sizes(std::int64_t samples, std::int64_t batch) {
  check(samples > 0, "a sampler needs samples", "samples", samples, "give 1 or more");
  check(batch > 0, "a batch has samples", "batch", batch, "give 1 or more");
}

}  // namespace

std::int64_t shuffled_sample(std::int64_t place, std::int64_t samples, std::int64_t seed,
                             std::int64_t epoch) {
  const auto count = static_cast<std::uint64_t>(samples);
  const int half_bits = std::max(static_cast<int>(std::bit_width(count - 1) + 1) / 2, 1);
  auto number = static_cast<std::uint64_t>(place);
  do {
    number = permuted(number, half_bits, static_cast<std::uint64_t>(seed),
                      static_cast<std::uint64_t>(epoch));
  } while (number >= count);
  return static_cast<std::int64_t>(number);
}

DistributedSampler::DistributedSampler(std::int64_t samples, const SamplerOptions& options)
    : samples_(samples), options_(options), state_{.seed = options.seed} {
  check_sizes(samples, options.batch);
}

DistributedSampler::DistributedSampler(std::int64_t samples, const DeviceMesh& mesh,
                                       const SamplerOptions& options)
    : DistributedSampler(samples, options) {
  const std::optional<Coordinate> here = mesh.coordinate_of(World::of(mesh).rank());
  if (mesh.ndim() != 1 || !here) {
    throw UsageError("a sampler gives parts to the ranks of one axis")
        .fact("mesh", to_string(mesh))
        .hint("slice the axis that cuts batches, mesh[\"dp\"] say, on a rank of the mesh");
  }
  part_ = here->front();
  parts_ = mesh.size();
}

SampleBatch DistributedSampler::next(std::int64_t batch) {
  check_sizes(samples_, batch);
  if (state_.taken == samples_) begin_epoch(state_.epoch + 1);
  SampleBatch result;
  result.size = std::min(batch, samples_ - state_.taken);
  // as an even Shard(0) cuts
  const std::int64_t share = share_of(result.size);
  const std::int64_t begin = std::min(part_ * share, result.size);
  const std::int64_t end = std::min(begin + share, result.size);
  for (std::int64_t k = begin; k < end; ++k) {
    const std::int64_t place = state_.taken + k;
    result.samples.push_back(options_.order == SampleOrder::InOrder
                                 ? place
                                 : shuffled_sample(place, samples_, state_.seed, state_.epoch));
  }
  state_.taken += result.size;
  return result;
}

std::int64_t DistributedSampler::fewest(std::int64_t batch) const {
  return std::max<std::int64_t>(batch - share_of(batch) * (parts_ - 1), 0);
}

void DistributedSampler::restore(const SamplerState& state) {
  check(state.epoch >= 0, "an epoch counts from 0", "epoch", state.epoch, "give 0 or more");
  check(state.taken >= 0 && state.taken <= samples_,
        "a sampler cannot have taken more samples than there are", "taken", state.taken,
        "restore the state of a sampler of the same samples");
  state_ = state;
}

void DistributedSampler::begin_epoch(std::int64_t epoch) {
  restore({.seed = state_.seed, .epoch = epoch, .taken = 0});
}

std::string to_string(const SamplerState& state) {
  return "seed=" + std::to_string(state.seed) + ", epoch=" + std::to_string(state.epoch) +
         ", taken=" + std::to_string(state.taken);
}

SamplerState parse_sampler_state(std::string_view text) {
  Scanner scan(text, "the state of a sampler", "seed=1, epoch=2, taken=512");
  const auto number = [&](std::string_view name) {
    scan.expect_word(name);
    scan.expect("=");
    return scan.integer();
  };
  SamplerState state;
  state.seed = number("seed");
  scan.expect(",");
  state.epoch = number("epoch");
  scan.expect(",");
  state.taken = number("taken");
  scan.expect_end();
  if (state.epoch < 0) scan.fail("an epoch of 0 or more");
  if (state.taken < 0) scan.fail("a count of 0 or more");
  return state;
}

}  // namespace tegula
