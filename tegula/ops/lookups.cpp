// Looking rows up by index: embeddings, and the loss that picks one class per row.
#include "tegula/ops/families.h"
#include "tegula/ops/loss_reduction.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// (weight [v, d], indices) -> [indices..., d]. Where v is cut, each rank looks up what it has.
std::optional<Signature> embedding(const OpSchema& schema) {
  if (schema.spec(0).ndim() != 2) return std::nullopt;
  Signature signature;
  const Term weight = own_factors(signature, schema.spec(0).shape());
  const Term indices = own_factors(signature, schema.spec(1).shape());
  Term result = indices;
  result.factors.push_back(weight.factors[1]);
  result.sizes.push_back(weight.sizes[1]);
  signature.looked_up = weight.factors[0];
  signature.operands = {{weight}, {indices}};
  signature.results = {{result}};
  return signature;
}

// (grad [indices..., d], indices, num_weights, padding_idx, scale_by_freq) -> [v, d]
std::optional<Signature> embedding_backward(const OpSchema& schema) {
  if (schema.flag(4)) return std::nullopt;  // counts how often an index appears everywhere
  Shape expected = schema.spec(1).shape();
  if (schema.spec(0).ndim() == 0) return std::nullopt;
  const std::int64_t width = schema.spec(0).shape().back();
  expected.push_back(width);
  if (schema.spec(0).shape() != expected) return std::nullopt;
  Signature signature;
  const Term indices = own_factors(signature, schema.spec(1).shape());
  Term grad = indices;
  grad.factors.push_back(signature.add_factor(width));
  grad.sizes.push_back(width);
  signature.operands = {{.term = grad, .is_linear = true}, {indices}};
  signature.results = {{{{kNoFactor, grad.factors.back()}, {schema.integer(2), width}}}};
  return signature;
}

// (grad [b, d], weight [v, d], indices [n], offsets, bag of each index, ...) -> [n]
std::optional<Signature> embedding_bag_weights_backward(const OpSchema& schema) {
  const Shape& grad = schema.spec(0).shape();
  const Shape& weight = schema.spec(1).shape();
  if (grad.size() != 2 || weight.size() != 2 || grad[1] != weight[1]) return std::nullopt;
  Signature signature;
  signature.needs_elements = true;
  const Factor columns = signature.add_factor(grad[1]);
  signature.operands = {{.term = {{kNoFactor, columns}, grad}, .is_linear = true},
                        {{{kNoFactor, columns}, weight}}};
  for (std::size_t k = 2; k < schema.tensors.size(); ++k) {
    const Shape& shape = schema.spec(k).shape();
    signature.operands.push_back({{std::vector<Factor>(shape.size(), kNoFactor), shape}});
  }
  signature.results = {{{{kNoFactor}, schema.spec(2).shape()}}};
  return signature;
}

// self [n, c, ...], of which each [n, ...] has a class.
struct Classified {
  Term all, places, classes;
};

// None if target [n, ...] or weight [c] do not fit. The classes stay whole.
std::optional<Classified> classified(Signature& signature, const OpSchema& schema, std::size_t self,
                                     std::size_t weight) {
  const Shape& shape = schema.spec(self).shape();
  if (shape.size() != 2 && shape.size() != 4) return std::nullopt;
  const Term all = own_factors(signature, shape);
  signature.is_whole[1] = true;
  Term places = all;
  places.factors.erase(places.factors.begin() + 1);
  places.sizes.erase(places.sizes.begin() + 1);
  if (schema.spec(self + 1).shape() != places.sizes) return std::nullopt;
  if (!has_shape_if_given(schema, weight, {shape[1]})) return std::nullopt;
  return Classified{all, places, {{all.factors[1]}, {shape[1]}}};
}

// (self, target, weight?, reduction, ignore_index) -> loss, total weight. The mean divides by what
// all places weigh: it is made of the sum elsewhere.
std::optional<Signature> nll_loss(const OpSchema& schema) {
  Signature signature;
  const std::optional<Classified> dims = classified(signature, schema, 0, 2);
  if (!dims) return std::nullopt;
  const std::int64_t reduction = schema.integer(3);
  if (reduction == kMean) signature.is_whole.assign(signature.is_whole.size(), true);
  signature.operands = {{dims->all}, {dims->places}};
  add_optional_operand(signature, schema, 2, dims->classes);
  signature.results = {{reduction == kNoReduction ? dims->places : Term{}}, {Term{}}};
  return signature;
}

// (grad, self, target, weight?, reduction, ignore_index, total weight) -> of self
std::optional<Signature> nll_loss_backward(const OpSchema& schema) {
  Signature signature;
  const std::optional<Classified> dims = classified(signature, schema, 1, 3);
  if (!dims) return std::nullopt;
  const Term grad = schema.integer(4) == kNoReduction ? dims->places : Term{};
  signature.operands = {{.term = grad, .is_linear = true}, {dims->all}, {dims->places}};
  add_optional_operand(signature, schema, 3, dims->classes);
  signature.operands.push_back({Term{}});
  signature.results = {{dims->all}};
  return signature;
}

}  // namespace

void add_lookups(RuleTable& rules) {
  rules.add("embedding", "vd, i -> id", embedding, "f32[10, 6], i64[8]");
  rules.add("embedding_dense_backward", "id, i -> vd", embedding_backward,
            "f32[8, 6], i64[8], num_weights=10, padding_idx=-1, scale_grad_by_freq=false");
  rules.add("_embedding_bag_per_sample_weights_backward", "bd * ~vd, ~n -> n",
            embedding_bag_weights_backward,
            "f32[2, 6], f32[10, 6], i64[8], i64[2], i64[8], mode=0, padding_idx=-1");
  rules.add("nll_loss_forward", "nc, n, c -> (n), ()", nll_loss,
            "f32[8, 10], i64[8], weight=none, reduction=2, ignore_index=-100");
  rules.add("nll_loss_backward", "(n), nc, n, c, () -> nc", nll_loss_backward,
            "f32[], f32[8, 10], i64[8], weight=none, reduction=2, ignore_index=-100, f32[]");
  rules.add("nll_loss2d_forward", "nchw, nhw, c -> (nhw), ()", nll_loss,
            "f32[8, 10, 6, 4], i64[8, 6, 4], weight=none, reduction=2, ignore_index=-100");
  rules.add("nll_loss2d_backward", "(nhw), nchw, nhw, c, () -> nchw", nll_loss_backward,
            "f32[], f32[8, 10, 6, 4], i64[8, 6, 4], weight=none, reduction=2, "
            "ignore_index=-100, f32[]");
}

}  // namespace tegula::inner::families
