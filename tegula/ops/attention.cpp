// Attention: batches and heads are computed one by one.
#include "tegula/ops/families.h"

namespace tegula::families {
namespace {

// libtorch computes with heads inside of rows: [b, q, h, d] in memory.
SignatureOf with_heads_inside(RuleText text) {
  return [form = text.form()](const OpSchema& schema) {
    std::optional<Signature> signature = signature_of(form, schema);
    if (!signature) return signature;
    signature->needs_elements = true;
    for (Result& result : signature->results) {
      result.memory_order = {0, 2, 1};
      if (result.term.factors.size() == 4) result.memory_order.push_back(3);
    }
    return signature;
  };
}

}  // namespace

void add_attention(RuleTable& rules) {
  rules.add("_scaled_dot_product_flash_attention_for_cpu", "bhqd, bhkd, bhke -> bhqe, bhq",
            with_heads_inside("~bhq!d!, ~bhk!d!, ~bhk!e!, ~bhq!k! -> bhqe, bhq"),
            "f32[4, 6, 8, 2], f32[4, 6, 10, 2], f32[4, 6, 10, 2], dropout_p=0, is_causal=false");
  rules.add(
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      "bhqe, bhqd, bhkd, bhke, bhqe, bhq -> bhqd, bhkd, bhke",
      with_heads_inside("~bhq!e!, ~bhq!d!, ~bhk!d!, ~bhk!e!, ~bhq!e!, ~bhq!, ~bhq!k! -> "
                        "bhqd, bhkd, bhke"),
      "f32[4, 6, 8, 2], f32[4, 6, 8, 2], f32[4, 6, 10, 2], f32[4, 6, 10, 2], f32[4, 6, 8, 2], "
      "f32[4, 6, 8], dropout_p=0, is_causal=false");
}

}  // namespace tegula::families
