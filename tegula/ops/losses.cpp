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

// (self, target, reduction, ...) -> loss
std::optional<Signature> loss(const OpSchema& schema) {
  if (!are_alike(schema, 0)) return std::nullopt;
  const std::int64_t reduction = schema.integer(2);
  Signature signature;
  const Term self = own_factors(signature, schema.spec(0).shape());
  signature.operands = {{self}, {self}};
  if (reduction == kNoReduction) {
    signature.results = {{self, ResultLayout::LikeOperands}};
  } else {
    signature.results = {{Term{}}};
  }
  if (reduction == kMean) signature.averaged = self.factors;
  return signature;
}

// (grad, self, target, reduction, ...) -> of self
std::optional<Signature> loss_backward(const OpSchema& schema) {
  if (!are_alike(schema, 1)) return std::nullopt;
  const Shape& shape = schema.spec(1).shape();
  const Shape& of_grad = schema.spec(0).shape();
  if (!of_grad.empty() && of_grad != shape) return std::nullopt;
  Signature signature;
  const Term self = own_factors(signature, shape);
  signature.operands = {{of_grad.empty() ? Term{} : self, true}, {self}, {self}};
  signature.results = {{self}};
  if (schema.integer(3) == kMean) signature.averaged = self.factors;
  return signature;
}

}  // namespace

void add_losses(RuleTable& rules) {
  for (const auto& [op, more] :
       {std::pair("mse_loss", ""), std::pair("soft_margin_loss", ""),
        std::pair("smooth_l1_loss", ", beta=1"), std::pair("huber_loss", ", delta=1")}) {
    const std::string arguments = std::string("f32[8, 6], f32[8, 6], reduction=1") + more;
    rules.add(op, "loss", loss, arguments);
    rules.add(std::string(op) + "_backward", "gradient of a loss", loss_backward,
              "f32[], " + arguments);
  }
}

}  // namespace tegula::inner::families
