// Which samples a rank takes: each epoch's shuffled, in global batches that do not depend on the
// number of ranks.
//
//   DistributedSampler sampler(samples, mesh["dp"], {.batch = 512, .seed = 1});
//   while (sampler.state().epoch < 3) {
//     const SampleBatch batch = sampler.next();       // what this rank has of the next batch
//     ...
//     save(to_string(sampler.state()));               // "seed=1, epoch=0, taken=512"
//   }
//
// No sample is left out and none is repeated: the last batch of an epoch is shorter, a rank may
// have no samples of it, and a mean over a tensor that is cut so is still that of all of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/mesh/device_mesh.h"

namespace tegula {

// Where in which epoch; a value that prints and parses.
struct SamplerState {
  std::int64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t taken = 0;  // samples of this epoch, by all ranks together
  bool operator==(const SamplerState&) const = default;
};
// "seed=1, epoch=2, taken=512"
std::string to_string(const SamplerState& state);
// The reverse. UsageError if it is none, or a number is negative.
SamplerState parse_sampler_state(std::string_view text);

enum class SampleOrder : std::uint8_t { Shuffled, InOrder };

struct SamplerOptions {
  std::int64_t batch = 1;  // samples of all ranks together
  std::int64_t seed = 0;
  SampleOrder order = SampleOrder::Shuffled;
};

// A part of a global batch. The rows of all ranks, in the order of the axis, are the batch, cut as
// Shard(0) cuts it.
struct SampleBatch {
  std::vector<std::int64_t> samples;  // of this rank
  std::int64_t size = 0;              // of the whole batch
};

// The sample that stands at `place` of an epoch that is shuffled, 0 <= place < samples. For one
// seed and epoch each sample stands at one place; constant memory and time, the same on any
// machine.
std::int64_t shuffled_sample(std::int64_t place, std::int64_t samples, std::int64_t seed,
                             std::int64_t epoch);

// A value: copies go their own ways. Sends nothing; ranks agree because they make the same calls.
class DistributedSampler {
 public:
  // The axis of `mesh` is the one that cuts batches; ranks that share a place on it get the same.
  // UsageError: no samples, a batch below 1, a mesh of several axes, or of which this rank is none.
  DistributedSampler(std::int64_t samples, const DeviceMesh& mesh, const SamplerOptions& options);
  // For one rank.
  DistributedSampler(std::int64_t samples, const SamplerOptions& options);

  // This rank's part of the next batch. Behind the last of an epoch the next one begins.
  SampleBatch next() { return next(options_.batch); }
  // The same of a batch of another size.
  SampleBatch next(std::int64_t batch);

  const SamplerState& state() const { return state_; }
  // Goes on where another one stood, on any number of ranks. UsageError: more taken than there are
  // samples.
  void restore(const SamplerState& state);
  // Begins the epoch with this number.
  void begin_epoch(std::int64_t epoch);
  std::int64_t samples() const { return samples_; }
  // What the rank that has fewest samples of a batch of this size has.
  std::int64_t fewest(std::int64_t batch) const;

 private:
  std::int64_t share_of(std::int64_t batch) const { return (batch + parts_ - 1) / parts_; }
  std::int64_t samples_;
  SamplerOptions options_;
  std::int64_t part_ = 0, parts_ = 1;  // this rank's place on the axis, and its size
  SamplerState state_;
};

}  // namespace tegula
