// Losses element by element, then none, the mean or the sum of them.
#include "tegula/ops/families.h"
#include "tegula/ops/loss_reduction.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// self and target, from argument `self` on.
bool are_alike(const OpSchema& schema, std::size_t self) {
  return schema.spec(self).shape() == schema.spec(self + 1).shape();
}

// A weight that is broadcast to the elements of self; none if it cannot be.
std::optional<Term> broadcast_to(const Term& self, const Shape& shape) {
  if (shape.size() > self.sizes.size()) return std::nullopt;
  Term term;
  term.sizes = shape;
  const std::size_t missing = self.sizes.size() - shape.size();
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const bool is_same = shape[dim] == self.sizes[missing + dim];
    if (!is_same && shape[dim] != 1) return std::nullopt;
    term.factors.push_back(is_same ? self.factors[missing + dim] : kNoFactor);
  }
  return term;
}

// The weights at the given arguments, as the next operands. False if one does not fit.
bool add_weights(Signature& signature, const OpSchema& schema, const Term& self,
                 const std::vector<std::size_t>& arguments) {
  for (const std::size_t argument : arguments) {
    if (schema.is_none(argument)) continue;
    const std::size_t tensor = schema.tensor(argument);
    const std::optional<Term> term =
        schema.has(tensor) ? broadcast_to(self, schema.spec(tensor).shape()) : Term{};
    if (!term) return false;
    add_optional_operand(signature, schema, argument, *term);
  }
  return true;
}

// (self, target, weights..., reduction, ...) -> loss
SignatureOf loss(std::size_t weights = 0) {
  return [weights](const OpSchema& schema) -> std::optional<Signature> {
    if (!are_alike(schema, 0)) return std::nullopt;
    const std::int64_t reduction = schema.integer(2 + weights);
    Signature signature;
    const Term self = own_factors(signature, schema.spec(0).shape());
    signature.operands = {{self}, {self}};
    std::vector<std::size_t> given;
    for (std::size_t k = 0; k < weights; ++k) given.push_back(2 + k);
    if (!add_weights(signature, schema, self, given)) return std::nullopt;
    if (reduction == kNoReduction) {
      signature.results = {{self, ResultLayout::LikeOperands}};
    } else {
      signature.results = {{Term{}}};
    }
    if (reduction == kMean) signature.averaged = self.factors;
    return signature;
  };
}

// (grad, self, target, weights..., reduction, ...) -> of self
SignatureOf loss_backward(std::size_t weights = 0) {
  return [weights](const OpSchema& schema) -> std::optional<Signature> {
    if (!are_alike(schema, 1)) return std::nullopt;
    const Shape& shape = schema.spec(1).shape();
    const Shape& of_grad = schema.spec(0).shape();
    if (!of_grad.empty() && of_grad != shape) return std::nullopt;
    Signature signature;
    const Term self = own_factors(signature, shape);
    signature.operands = {
        {.term = of_grad.empty() ? Term{} : self, .is_linear = true}, {self}, {self}};
    std::vector<std::size_t> given;
    for (std::size_t k = 0; k < weights; ++k) given.push_back(3 + k);
    if (!add_weights(signature, schema, self, given)) return std::nullopt;
    signature.results = {{self}};
    if (schema.integer(3 + weights) == kMean) signature.averaged = self.factors;
    return signature;
  };
}

// Margins of the classes of a row ---------------------------------------------------------------

// Rows [n, c] whose classes stay whole.
struct Rows {
  Term all, rows, classes;
};

std::optional<Rows> rows_of(Signature& signature, const OpSchema& schema, std::size_t self) {
  const Shape& shape = schema.spec(self).shape();
  if (shape.size() != 2) return std::nullopt;
  const Term all = own_factors(signature, shape);
  signature.is_whole[1] = true;
  signature.needs_elements = true;  // of no rows libtorch gives whatever lies there
  return Rows{all, {{all.factors[0]}, {shape[0]}}, {{all.factors[1]}, {shape[1]}}};
}

// (self [n, c], target [n], p, margin, weight [c]?, reduction) -> loss
std::optional<Signature> multi_margin(const OpSchema& schema) {
  Signature signature;
  const std::optional<Rows> dims = rows_of(signature, schema, 0);
  if (!dims || schema.spec(1).shape() != dims->rows.sizes) return std::nullopt;
  if (!has_shape_if_given(schema, 4, dims->classes.sizes)) return std::nullopt;
  const std::int64_t reduction = schema.integer(5);
  signature.operands = {{dims->all}, {dims->rows}};
  add_optional_operand(signature, schema, 4, dims->classes);
  signature.results = {{reduction == kNoReduction ? dims->rows : Term{}}};
  if (reduction == kMean) signature.averaged = dims->rows.factors;
  return signature;
}

// (grad, self, target, p, margin, weight?, reduction) -> of self
std::optional<Signature> multi_margin_backward(const OpSchema& schema) {
  Signature signature;
  const std::optional<Rows> dims = rows_of(signature, schema, 1);
  if (!dims || schema.spec(2).shape() != dims->rows.sizes) return std::nullopt;
  if (!has_shape_if_given(schema, 5, dims->classes.sizes)) return std::nullopt;
  const std::int64_t reduction = schema.integer(6);
  const Term grad = reduction == kNoReduction ? dims->rows : Term{};
  if (schema.spec(0).shape() != grad.sizes) return std::nullopt;
  signature.operands = {{.term = grad, .is_linear = true}, {dims->all}, {dims->rows}};
  add_optional_operand(signature, schema, 5, dims->classes);
  signature.results = {{dims->all}};
  if (reduction == kMean) signature.averaged = dims->rows.factors;
  return signature;
}

// (self [n, c], target [n, c], reduction) -> loss, which classes are targets. The mean is made of
// the losses of rows elsewhere: what else comes is no mean.
std::optional<Signature> multilabel_margin(const OpSchema& schema) {
  Signature signature;
  const std::optional<Rows> dims = rows_of(signature, schema, 0);
  if (!dims || !are_alike(schema, 0)) return std::nullopt;
  const std::int64_t reduction = schema.integer(2);
  signature.is_whole[0] = reduction == kMean;
  signature.operands = {{dims->all}, {dims->all}};
  signature.results = {{reduction == kNoReduction ? dims->rows : Term{}}, {dims->all}};
  return signature;
}

// (grad, self, target, reduction, which classes are targets) -> of self
std::optional<Signature> multilabel_margin_backward(const OpSchema& schema) {
  Signature signature;
  const std::optional<Rows> dims = rows_of(signature, schema, 1);
  if (!dims || !are_alike(schema, 1)) return std::nullopt;
  const std::int64_t reduction = schema.integer(3);
  const Term grad = reduction == kNoReduction ? dims->rows : Term{};
  if (schema.spec(0).shape() != grad.sizes) return std::nullopt;
  if (schema.spec(3).shape() != dims->all.sizes) return std::nullopt;
  signature.operands = {{.term = grad, .is_linear = true}, {dims->all}, {dims->all}, {dims->all}};
  signature.results = {{dims->all}};
  if (reduction == kMean) signature.averaged = dims->rows.factors;
  return signature;
}

}  // namespace

void add_losses(RuleTable& rules) {
  for (const auto& [op, more] :
       {std::pair("mse_loss", ""), std::pair("soft_margin_loss", ""),
        std::pair("smooth_l1_loss", ", beta=1"), std::pair("huber_loss", ", delta=1")}) {
    const std::string arguments = std::string("f32[8, 6], f32[8, 6], reduction=1") + more;
    rules.add(op, "loss", loss(), arguments);
    rules.add(std::string(op) + "_backward", "gradient of a loss", loss_backward(),
              "f32[], " + arguments);
  }
  const std::string weighted = "f32[8, 6], f32[8, 6], weight=f32[6], ";
  // with out= libtorch reduces what lies there, not the loss
  const auto new_loss = [rule = loss(1)](const OpSchema& schema) {
    return schema.out.empty() ? rule(schema) : std::nullopt;
  };
  rules.add("binary_cross_entropy", "loss", new_loss, weighted + "reduction=1");
  rules.add("binary_cross_entropy_backward", "gradient of a loss", loss_backward(1),
            "f32[], " + weighted + "reduction=1");
  rules.add("binary_cross_entropy_with_logits", "loss", loss(2),
            weighted + "pos_weight=f32[6], reduction=1");

  const std::string rows = "f32[8, 6], i64[8], p=1, margin=1, weight=f32[6], reduction=1";
  rules.add("multi_margin_loss", "nc, n, c -> (n)", multi_margin, rows);
  rules.add("multi_margin_loss_backward", "(n), nc, n, c -> nc", multi_margin_backward,
            "f32[], " + rows);
  const std::string labels = "f32[8, 6], i64[8, 6], reduction=2";
  rules.add("multilabel_margin_loss_forward", "nc, nc -> (n), nc", multilabel_margin, labels);
  rules.add("multilabel_margin_loss_backward", "(n), nc, nc, nc -> nc", multilabel_margin_backward,
            "f32[], " + labels + ", f32[8, 6]");
}

}  // namespace tegula::inner::families
