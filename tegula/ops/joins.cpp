// New tensors: like another, joined from several, and gradients of taking a part.
#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// A gradient of a part of a dim, put into zeros of the whole: other dims may be cut. A slice has
// the dim, a single element has not.
enum class Piece { Slice, Element };

SignatureOf put_into_zeros(Piece part) {
  return [part](const OpSchema& schema) -> std::optional<Signature> {
    const Ints& whole = schema.ints(1);
    const std::size_t along = wrapped_dim(schema.integer(2), whole.size());
    Signature signature;
    Term result;
    for (std::size_t dim = 0; dim < whole.size(); ++dim) {
      result.factors.push_back(dim == along ? kNoFactor : signature.add_factor(whole[dim]));
      result.sizes.push_back(whole[dim]);
    }
    Term grad = result;
    if (part == Piece::Slice) {
      grad.sizes = schema.spec(0).shape();
    } else {
      grad.factors.erase(grad.factors.begin() + static_cast<std::ptrdiff_t>(along));
      grad.sizes.erase(grad.sizes.begin() + static_cast<std::ptrdiff_t>(along));
    }
    if (grad.sizes.size() != schema.spec(0).shape().size()) return std::nullopt;
    signature.operands.push_back({.term = grad, .is_linear = true});
    signature.results.push_back({result});
    signature.size_arguments.push_back({1, result});
    return signature;
  };
}

}  // namespace

void add_joins(RuleTable& rules) {
  for (const char* op : {"ones_like", "zeros_like"}) {
    rules.add(op, "a new tensor like self", like_self(1),
              "f32[8, 6], dtype=none, layout=none, device=none, pin_memory=none, "
              "memory_format=none");
  }
  rules.add("full_like", "a new tensor like self", like_self(2),
            "f32[8, 6], value=1, dtype=none, layout=none, device=none, pin_memory=none, "
            "memory_format=none");
  rules.add("cat", "joined along a dim", concatenation(1), "[f32[8, 6], f32[8, 4]], dim=1");
  rules.add("stack", "joined along a new dim", stacking(1), "[f32[8, 6], f32[8, 6]], dim=1");
  rules.add("slice_backward", "a slice put into zeros", put_into_zeros(Piece::Slice),
            "f32[8, 2], input_sizes=[8, 6], dim=1, start=2, end=4, step=1");
  rules.add("select_backward", "an element put into zeros", put_into_zeros(Piece::Element),
            "f32[8], input_sizes=[8, 6], dim=1, index=2");
}

}  // namespace tegula::inner::families
