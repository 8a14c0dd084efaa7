// Batches of sequences of tokens for language models, one DTensor each.
//
//   TokenSampler sampler(TokenFile("train.tokens"), 128, mesh, {.batch = 512, .seed = 1});
//   const TokenBatch batch = sampler.next();
//   loss = model->loss(batch.inputs, batch.targets);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "tegula/mesh/device_mesh.h"
#include "tegula/parallel/sampler.h"
#include "tegula/parallel/token_file.h"

namespace tegula {

// Both are int64 [batch, length], cut by rows over the data axis, replicated over the others;
// targets are what follows the inputs.
struct TokenBatch {
  at::Tensor inputs, targets;
};

// Sequence s of a file is its tokens from s * length on, and one more, which is a target only; what
// is left at the end, shorter than a sequence, is not used. The sequences are the samples of a
// DistributedSampler. Each rank reads its own, and nothing is sent.
class TokenSampler {
 public:
  // `axis` is the data axis of the mesh. UsageError: no such axis, a length below 1, a file without
  // a sequence, options that DistributedSampler refuses.
  TokenSampler(TokenFile file, std::int64_t length, const DeviceMesh& mesh,
               const SamplerOptions& options, std::string_view axis = "dp");

  TokenBatch next();
  std::int64_t sequences() const { return sampler_.samples(); }
  // Where it stands, and going on from there: sampler().state(), sampler().restore(state).
  DistributedSampler& sampler() { return sampler_; }

 private:
  TokenFile file_;
  std::int64_t length_;
  DeviceMesh mesh_;
  std::size_t axis_;
  DistributedSampler sampler_;
};

}  // namespace tegula
