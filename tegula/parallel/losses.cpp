// The idea: softmax, log-sum-exp and the lookup of a class along a cut dim exchange totals
// (families/losses.cpp), so what is left to do is to put them together.
#include "tegula/parallel/losses.h"

#include <ATen/ATen.h>

#include <string>

#include "tegula/base/error.h"

namespace tegula {
namespace {

void check(const CrossEntropyOptions& options) {
  if (options.z_loss >= 0) return;
  throw UsageError("a z-loss cannot have a negative weight")
      .fact("z_loss", std::to_string(options.z_loss))
      .hint("give 0 or more");
}

// The squares of the rows' logsumexp, reduced.
at::Tensor z_loss(const at::Tensor& logits, const at::Tensor& target,
                  const CrossEntropyOptions& options) {
  at::Tensor squares = at::logsumexp(logits, logits.dim() == 1 ? 0 : 1).square();
  const bool are_classes = !target.is_floating_point();
  if (are_classes) squares = squares.masked_fill(target.eq(options.ignore_index), 0);
  if (options.reduction == at::Reduction::None) return squares;
  if (options.reduction == at::Reduction::Sum) return squares.sum();
  if (!are_classes) return squares.mean();
  return squares.sum() / target.ne(options.ignore_index).sum();
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                         const CrossEntropyOptions& options) {
  check(options);
  const at::Tensor loss = at::cross_entropy_loss(logits, target, options.weight, options.reduction,
                                                 options.ignore_index, options.label_smoothing);
  if (options.z_loss == 0) return loss;
  return at::add(loss, z_loss(logits, target, options), options.z_loss);
}

}  // namespace tegula
