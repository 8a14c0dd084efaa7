// Attention: batches and heads are computed one by one.
#include "tegula/ops/families.h"

namespace tegula::inner::families {
namespace {

// Batches and heads of all tensors but the mask, which the text names last: heads that several
// queries share could not be cut alike.
bool are_heads_alike(const Signature& signature, std::size_t mask) {
  const Shape& query = signature.operands.front().term.sizes;
  for (std::size_t k = 0; k < signature.operands.size() && k < mask; ++k) {
    const Shape& sizes = signature.operands[k].term.sizes;
    if (sizes.size() < 3 || sizes[0] != query[0] || sizes[1] != query[1]) return false;
  }
  return true;
}

// libtorch computes with heads inside of rows: [b, q, h, d] in memory. The output of the forward
// lies as the query does.
enum class Direction { Forward, Backward };

SignatureOf with_heads_inside(Direction direction, RuleText text) {
  return [direction, form = text.form()](const OpSchema& schema) {
    std::optional<Signature> signature = signature_of(form, schema);
    if (!signature || !are_heads_alike(*signature, form.operand_count - 1)) {
      return std::optional<Signature>();
    }
    signature->needs_elements = true;
    for (Result& result : signature->results) {
      const bool has_width = result.term.factors.size() == 4;
      if (has_width && direction == Direction::Forward) {
        result.layout = ResultLayout::LikeFirst;
        continue;
      }
      result.memory_order = {0, 2, 1};
      if (has_width) result.memory_order.push_back(3);
    }
    return signature;
  };
}

}  // namespace

void add_attention(RuleTable& rules) {
  rules.add(
      "_scaled_dot_product_flash_attention_for_cpu", "bhqd, bhkd, bhke -> bhqe, bhq",
      with_heads_inside(Direction::Forward, "~bhq!d!, ~bhk!d!, ~bhk!e!, ~bhq!k! -> bhqe, bhq"),
      "f32[4, 6, 8, 2], f32[4, 6, 10, 2], f32[4, 6, 10, 2], dropout_p=0, is_causal=false");
  rules.add(
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      "bhqe, bhqd, bhkd, bhke, bhqe, bhq -> bhqd, bhkd, bhke",
      with_heads_inside(Direction::Backward,
                        "~bhq!e!, ~bhq!d!, ~bhk!d!, ~bhk!e!, ~bhq!e!, ~bhq!, ~bhq!k! -> "
                        "bhqd, bhkd, bhke"),
      "f32[4, 6, 8, 2], f32[4, 6, 8, 2], f32[4, 6, 10, 2], f32[4, 6, 10, 2], f32[4, 6, 8, 2], "
      "f32[4, 6, 8], dropout_p=0, is_causal=false");
}

}  // namespace tegula::inner::families
