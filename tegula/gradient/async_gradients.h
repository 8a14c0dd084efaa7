// Gradients whose reductions are under way in a backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include "tegula/gradient/bucket.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {

// Inside a backward pass, for a gradient that is about to be stored in the leaf: its reduction is
// waited for when the pass ends. A gradient that the leaf has already is set aside until then, and
// added. If a reduction fails, or the pass does, every leaf has the gradient that it had before.
void finish_when_backward_ends(const at::Tensor& leaf, const PayloadPtr& reduced);

// The same for a gradient that is yet to be reduced, in a bucket with others of the pass: it is
// started when it is full, or when a gradient does not fit any more; what is left in buckets when
// the pass ends is started then, in the order in which buckets were begun. Ranks of a group whose
// gradients come in another order, or of which some are missing, throw a CommError, unless these
// have the same shapes: as with any collective, it is up to the program that ranks run the same
// pass. If the pass fails, what has not been started never is. When many bytes are under way, the
// oldest bucket is waited for.
PayloadPtr reduce_in_bucket(OwedGradient gradient, const BucketOptionsPtr& options);

// Inside a backward pass: the leaf's gradient, taken away. If the pass fails, it is there again.
at::Tensor take_gradient(const at::Tensor& leaf);

}  // namespace tegula::inner
