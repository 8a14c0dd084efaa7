// Attention: batches, heads and rows of the query are computed one by one.
#include "tegula/ops/families.h"

#include "tegula/rules/signatures.h"

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

// Rows and keys are counted from the first if the flag at `is_causal` is on: they stay whole then.
SignatureOf unless_causal(std::size_t is_causal, const SignatureOf& otherwise,
                          const SignatureOf& causal) {
  return [=](const OpSchema& schema) {
    return schema.flag(is_causal) ? causal(schema) : otherwise(schema);
  };
}

// Whole layers in one call, as libtorch runs them for inference -----------------------------------

// The first `batched` tensors are [b, s, e], of which b may be cut; weights stay whole.
std::optional<Signature> layer_of_batches(const OpSchema& schema, std::size_t batched) {
  const Shape& first = schema.spec(0).shape();
  if (first.size() != 3) return std::nullopt;
  Signature signature;
  signature.needs_elements = true;
  const Factor batch = signature.add_factor(first[0]);
  for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
    const Shape& shape = schema.spec(k).shape();
    Term term = own_factors(signature, shape);
    for (Factor factor : term.factors) signature.is_whole[static_cast<std::size_t>(factor)] = true;
    if (k < batched) {
      if (shape.size() != 3 || shape[0] != first[0]) return std::nullopt;
      term.factors[0] = batch;
    }
    signature.operands.push_back({term});
  }
  signature.results = {{signature.operands.front().term}};
  return signature;
}

// (src, embed_dim, num_heads, weights ..., mask?, mask_type?) -> like src
std::optional<Signature> encoder_layer(const OpSchema& schema) {
  constexpr std::size_t kMask = 18;
  return schema.is_none(kMask) ? layer_of_batches(schema, 1) : std::nullopt;
}

// (query, key, value, embed_dim, num_head, weights ..., mask?, need_weights, average_attn_weights)
// -> like query, weights of keys
std::optional<Signature> multi_head_attention(const OpSchema& schema) {
  constexpr std::size_t kHeads = 4, kMask = 9, kAverage = 11;
  std::optional<Signature> signature;
  if (schema.is_none(kMask)) signature = layer_of_batches(schema, 3);
  if (!signature) return std::nullopt;
  const Term& query = signature->operands[0].term;
  Term weights{{query.factors[0]}, {query.sizes[0]}};
  Shape whole = {query.sizes[1], signature->operands[1].term.sizes[1]};
  if (!schema.flag(kAverage)) whole.insert(whole.begin(), schema.integer(kHeads));
  for (std::int64_t size : whole) {
    weights.factors.push_back(kNoFactor);
    weights.sizes.push_back(size);
  }
  signature->results.push_back({weights});
  return signature;
}

}  // namespace

void add_attention(RuleTable& rules) {
  const std::string weights = "f32[18, 6], f32[18], f32[6, 6], f32[6]";
  rules.add("_native_multi_head_attention", "each batch", multi_head_attention,
            "f32[8, 4, 6], f32[8, 4, 6], f32[8, 4, 6], embed_dim=6, num_head=2, " + weights +
                ", mask=none, need_weights=true, average_attn_weights=true");
  rules.add("_transformer_encoder_layer_fwd", "each batch", encoder_layer,
            "f32[8, 4, 6], embed_dim=6, num_heads=2, " + weights +
                ", use_gelu=true, norm_first=true, eps=1, f32[6], f32[6], f32[6], f32[6], "
                "f32[8, 6], f32[8], f32[6, 8], f32[6]");
  rules.add(
      "_scaled_dot_product_flash_attention_for_cpu", "bhqd, bhkd, bhke -> bhqe, bhq",
      unless_causal(
          4, with_heads_inside(Direction::Forward, "~bhqd!, ~bhk!d!, ~bhk!e!, ~bhqk! -> bhqe, bhq"),
          with_heads_inside(Direction::Forward, "~bhq!d!, ~bhk!d!, ~bhk!e!, ~bhq!k! -> bhqe, bhq")),
      "f32[4, 6, 8, 2], f32[4, 6, 10, 2], f32[4, 6, 10, 2], dropout_p=0, is_causal=false");
  // A part of the rows, or of the keys, gives its share of what is summed over them.
  rules.add(
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      "bhqe, bhqd, bhkd, bhke, bhqe, bhq -> bhqd, bhkd, bhke",
      unless_causal(7,
                    with_heads_inside(Direction::Backward,
                                      "~bhqe!, ~bhqd!, ~bhkd!, ~bhke!, ~bhqe!, ~bhq, ~bhqk -> "
                                      "bhqd, bhkd, bhke"),
                    with_heads_inside(Direction::Backward,
                                      "~bhq!e!, ~bhq!d!, ~bhk!d!, ~bhk!e!, ~bhq!e!, ~bhq!, ~bhq!k! "
                                      "-> bhqd, bhkd, bhke")),
      "f32[4, 6, 8, 2], f32[4, 6, 8, 2], f32[4, 6, 10, 2], f32[4, 6, 10, 2], f32[4, 6, 8, 2], "
      "f32[4, 6, 8], dropout_p=0, is_causal=false");
}

}  // namespace tegula::inner::families
