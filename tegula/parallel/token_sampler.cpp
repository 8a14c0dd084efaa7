#include "tegula/parallel/token_sampler.h"

#include <ATen/ATen.h>

#include <utility>

#include "tegula/base/error.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {
namespace {

std::int64_t sequences_of(const TokenFile& file, std::int64_t length) {
  if (length >= 1 && file.size() > length) return (file.size() - 1) / length;
  throw UsageError("a token file has no sequence of this length")
      .fact("tokens", std::to_string(file.size()))
      .fact("length", std::to_string(length))
      .hint("a sequence has at least one token, and one more follows it");
}

}  // namespace

TokenSampler::TokenSampler(TokenFile file, std::int64_t length, const DeviceMesh& mesh,
                           const SamplerOptions& options, std::string_view axis)
    : file_(std::move(file)),
      length_(length),
      mesh_(mesh),
      axis_(mesh.axis_index(axis)),
      sampler_(sequences_of(file_, length), mesh[axis], options) {}

TokenBatch TokenSampler::next() {
  const SampleBatch batch = sampler_.next();
  const auto rows = static_cast<std::int64_t>(batch.samples.size());
  const at::Tensor sequences = at::empty({rows, length_ + 1}, at::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t sequence = batch.samples[static_cast<std::size_t>(row)];
    sequences[row].copy_(file_.tokens(sequence * length_, length_ + 1));
  }
  Placements placements(mesh_.ndim(), Replicate());
  placements[axis_] = Shard(0);
  FromLocalOptions options;
  options.shape = Shape{batch.size, length_};
  options.check = false;
  const auto placed = [&](const at::Tensor& mine) {
    return from_local(mine.contiguous(), mesh_, placements, options);
  };
  return {placed(sequences.narrow(1, 0, length_)), placed(sequences.narrow(1, 1, length_))};
}

}  // namespace tegula
