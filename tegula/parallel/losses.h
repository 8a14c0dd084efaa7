// Losses that are more than one call of libtorch.
//
//   at::Tensor logits = model->forward(tokens).flatten(0, 1);   // [rows, vocabulary]
//   cross_entropy(logits, targets, {.z_loss = 1e-4}).backward();
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tegula {

struct CrossEntropyOptions {
  std::optional<at::Tensor> weight = std::nullopt;  // per class
  at::Reduction::Reduction reduction = at::Reduction::Mean;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  // Times the square of each row's logsumexp, which keeps logits small.
  double z_loss = 0;
};

// at::cross_entropy_loss, plus the z-loss: reduced as the options say, a mean being that of the
// rows which are not ignored, whatever their classes weigh. The classes are dim 1 of the logits, or
// dim 0 if there is but one; targets are classes or probabilities of classes. Plain tensors or
// DTensors. Where the classes are cut (a vocabulary, of any size), the logits stay where they are:
// each rank sends a few numbers per row that it has.
// UsageError: a z_loss that is negative or NaN. Targets that are no class throw on the ranks that
// have them.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                         const CrossEntropyOptions& options = {});

}  // namespace tegula
